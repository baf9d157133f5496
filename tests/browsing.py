"""A real server and people with a real browser, for the tests of the page."""

import base64
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SCREENSHOTS = ROOT / "build" / "screenshots"
DESK, PHONE = (1280, 720), (375, 812)
PATIENCE = 30_000  # milliseconds; CI has slow cores
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}  # on small pictures more threads only wait for each other


def chromium():
    """Where Chromium is. Tests of the page fail without it: a page that nobody has opened is not tested."""
    names = ("chromium", "chromium-browser", "google-chrome")
    places = (os.environ.get("SLIR_CHROMIUM"), ROOT / ".venv" / "chromium", *map(shutil.which, names))
    for place in places:
        if place and Path(place).exists():
            return str(place)
    pytest.fail("The page is tested in Chromium, which is not here. Run `make .venv/chromium`, or set SLIR_CHROMIUM.")


@contextlib.contextmanager
def browsing():
    """A browser without a window."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        # Chromium's sandbox needs rights that machines for tests do not give; the only pages it sees are ours.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def serving(folder):
    """`slir serve` on a free port: its address."""
    command = [sys.executable, "-m", "slir", "serve", "--port", "0", "--folder", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ONE_THREAD)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"http://\S+/", line)
        assert found, f"the server says {line!r}"
        yield found[0]
    finally:
        server.terminate()
        server.wait(timeout=20)
        server.stdout.close()


class User:
    """A person with a browser of their own. What goes wrong inside the page is an error of the test."""

    def __init__(self, browser, address, *, size=DESK, touch=False):
        view = {"width": size[0], "height": size[1]}
        self.context = browser.new_context(viewport=view, has_touch=touch, is_mobile=touch, accept_downloads=True)
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.errors, self.requests = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        expect(self.page.locator("#example-list button").first).to_be_visible()

    def __getitem__(self, selector):
        return self.page.locator(selector)

    def named(self, selector, words):
        """The element with these words."""
        return self.page.locator(selector, has_text=words)

    def leave(self):
        self.context.close()
        assert self.errors == []

    def upload(self, *files):
        """files : (name, bytes)."""
        kind = "application/octet-stream"
        self.page.set_input_files("#files", [{"name": name, "mimeType": kind, "buffer": data} for name, data in files])

    def open(self, name, data):
        self.upload((name, data))
        expect(self["#name"]).to_have_text(name)

    def sheet(self, tab):
        """Show a panel; on a phone there is one at a time."""
        if self[f"#tab-{tab}"].is_visible():
            self[f"#tab-{tab}"].click()

    def known_noise(self, sigma):
        self.page.evaluate("() => (document.getElementById('advanced').open = true)")
        self["#noise"].select_option("number")
        self["#sigma-row input[type=number]"].fill(str(sigma))

    def restore(self):
        """Restore what is shown, and wait for the result."""
        self["#restore"].click()
        self.done()

    def done(self):
        expect(self["#restore"]).to_be_visible()
        expect(self["#said"]).to_contain_text("done in")
        expect(self["#result"]).not_to_have_attribute("hidden", "")

    def choose(self, value):
        """One of the radio buttons."""
        self[f"input[type=radio][value={value}]"].check()

    def settle(self):
        """Wait until what was asked of the canvas is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def picture(self):
        """What the canvas shows, (H, W, 3)."""
        self.settle()
        script = "() => document.getElementById('canvas').toDataURL('image/png').split(',')[1]"
        data = base64.b64decode(self.page.evaluate(script))
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)

    def zoom(self):
        """In percent, as the page says."""
        self.settle()
        return float(self["#zoom"].inner_text().split()[0])

    def point(self, across, down):
        """Coordinates of a place on the canvas, in shares of its sides."""
        box = self["#canvas"].bounding_box()
        return box["x"] + across * box["width"], box["y"] + down * box["height"]

    def save(self, selector):
        """Click on a download: its name and its bytes."""
        with self.page.expect_download() as waiting:
            self[selector].click()
        return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()

    def screenshot(self, name):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


def png(pixels, **options):
    """The bytes of a picture's file."""
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG", **options)
    return data.getvalue()


def scene(size=64, sigma=0.0, seed=0):
    """A grey picture with an edge, a ramp and a disk, and noise."""
    rng = np.random.default_rng(seed)
    row, col = np.mgrid[:size, :size] / size
    clean = 60 + 80 * (row + col > 1) + 50 * col + 40 * (np.hypot(row - 0.4, col - 0.4) < 0.2)
    return np.clip(np.rint(clean + sigma * rng.standard_normal(clean.shape)), 0, 255).astype(np.uint8)
