"""The page in a real browser, against a real server: what a person does with it."""

import base64
import io
import re
import subprocess
import sys
import urllib.parse
import zipfile

import numpy as np
import pytest
import tifffile
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect

from browsing import ONE_THREAD, PHONE, User, browsing, png, scene, serving

NOISY = scene(64, sigma=20)
SMALL = scene(48, sigma=20, seed=1)


@pytest.fixture(scope="module")
def browser():
    with browsing() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture
def user(browser, address):
    someone = User(browser, address)
    yield someone
    someone.leave()


@pytest.fixture(scope="module")
def restored(browser, address):
    """Somebody who has restored NOISY; tests may look at it in any way, and leave it as it is."""
    someone = User(browser, address)
    someone.open("night.png", png(NOISY))
    someone.known_noise(20)
    someone.restore()
    yield someone
    someone.leave()


def test_the_page_is_light_and_quick_and_asks_nobody_else(user, address):
    assert {urllib.parse.urlsplit(url).netloc for url in user.requests} == {urllib.parse.urlsplit(address).netloc}
    weight = user.page.evaluate("""() => performance.getEntriesByType("resource")
        .concat(performance.getEntriesByType("navigation")).filter((entry) => !entry.name.includes("/api/"))
        .reduce((sum, entry) => sum + entry.decodedBodySize, 0)""")
    assert 20_000 < weight < 300_000
    user.page.reload()  # the first time the server is still waking up
    expect(user["#example-list button"].first).to_be_visible()
    times = user.page.evaluate("() => performance.getEntriesByType('navigation')[0].toJSON()")
    assert times["domInteractive"] < 1000
    assert times["domContentLoadedEventEnd"] < 3000  # all modules run; half a second where nobody else is at work
    user.screenshot("desk-welcome")


def test_upload_restore_and_download_what_the_command_line_writes(restored, tmp_path):
    expect(restored["#facts"]).to_have_text("64 × 64, grey, 8-bit")
    expect(restored["#result-facts"]).to_contain_text("20")
    name, data = restored.save("#download-result")
    assert name == "night-denoised.png"
    source, output = tmp_path / "night.png", tmp_path / "out.png"
    source.write_bytes(png(NOISY))
    command = [sys.executable, "-m", "slir", "denoise", source, "-o", output, "--sigma", "20", "--quiet"]
    subprocess.run(command, check=True, env=ONE_THREAD)
    assert data == output.read_bytes()
    name, data = restored.save("#download-sidecar")
    assert name == "night-denoised.png.json"
    assert b'"night.png"' in data
    truth = scene(64).astype(float)
    after = np.asarray(Image.open(output)).astype(float)
    assert np.mean((after - truth) ** 2) < 0.3 * np.mean((NOISY - truth) ** 2)


def test_slider_by_keyboard_and_by_mouse(restored):
    restored.choose("before")
    before = restored.picture()
    restored.choose("after")
    after = restored.picture()
    assert np.abs(before - after).max() > 20
    restored.choose("slider")
    half = restored.picture()
    cut = half.shape[1] // 2
    assert np.array_equal(half[:, : cut - 2], before[:, : cut - 2])
    assert np.array_equal(half[:, cut + 2 :], after[:, cut + 2 :])
    restored.screenshot("desk-result")
    restored["#wipe"].focus()
    restored.page.keyboard.press("End")
    assert np.array_equal(restored.picture(), before)
    restored.page.keyboard.press("Home")
    assert np.array_equal(restored.picture(), after)
    left, middle = restored.point(0.002, 0.5), restored.point(0.5, 0.5)
    restored.page.mouse.move(*left)
    restored.page.mouse.down()
    restored.page.mouse.move(*middle, steps=4)
    restored.page.mouse.up()
    assert abs(float(restored["#wipe"].input_value()) - 50) < 2


def test_space_tells_before_from_after(restored):
    restored.choose("slider")
    restored["#canvas"].focus()
    for mode in ("before", "after", "before"):
        restored.page.keyboard.press("Space")
        expect(restored[f"[name=mode][value={mode}]"]).to_be_checked()
    restored.page.keyboard.press("s")
    expect(restored["[value=slider]"]).to_be_checked()


def test_zoom_to_single_pixels_in_step(restored):
    restored.choose("side")
    restored["#actual"].click()
    expect(restored["#zoom"]).to_have_text("100 %")
    restored.page.mouse.move(*restored.point(0.25, 0.5))
    for _ in range(6):
        restored.page.mouse.wheel(0, -500)
    zoom = restored.zoom()
    assert zoom > 3000
    picture = restored.picture()
    half = picture.shape[1] // 2
    # A pixel of the picture covers many of the screen with one colour; both sides show the same pixels.
    patch = picture[picture.shape[0] // 2 - 3 : picture.shape[0] // 2 + 3, half // 2 - 3 : half // 2 + 3]
    assert len(np.unique(patch.reshape(-1, 3), axis=0)) <= 3  # at most an edge of the grid
    x, y = restored.point(0.25, 0.5)
    restored.page.mouse.move(x, y)
    left = restored["#place"].inner_text()
    restored.page.mouse.move(x + restored["#canvas"].bounding_box()["width"] / 2, y)
    assert restored["#place"].inner_text() == left
    restored.screenshot("desk-pixels")
    restored["#canvas"].focus()
    restored.page.keyboard.press("0")
    assert restored.zoom() < zoom / 4
    restored.choose("slider")


def test_difference(restored):
    restored.choose("slider")
    restored["#canvas"].focus()
    restored.page.keyboard.press("d")
    expect(restored["#legend"]).to_contain_text("After minus before")
    picture = restored.picture()
    middle = picture[200:400, 300:400]
    assert abs(middle.mean() - 128) < 12  # the noise that was taken away has no mean
    assert middle.std() > 20
    restored.page.keyboard.press("d")
    expect(restored["#legend"]).to_be_hidden()


def test_error_map_and_what_is_behind_a_pixel(restored):
    restored.choose("after")
    plain = restored.picture()
    restored["#canvas"].focus()
    restored.page.keyboard.press("e")
    expect(restored["#legend"]).to_contain_text("Expected error")
    ticks = [float(text) for text in restored["#legend-ticks span"].all_inner_texts()]
    assert ticks[0] == 0 < ticks[1] < ticks[2] < 64
    assert np.abs(restored.picture() - plain).max() > 30
    restored.page.mouse.click(*restored.point(0.5, 0.4))
    expect(restored["#pixel-answer .patches:not(.sum) canvas"]).to_have_count(16)
    low, high = map(float, restored["#pixel-answer .spread > b"].inner_text().split(" – "))
    assert low < float(restored["#pixel-answer tbody td"].nth(1).inner_text()) < high
    restored.screenshot("desk-errors")
    name, data = restored.save("#download-error")
    assert name == "night-denoised-error.tif"
    assert data[:2] in (b"II", b"MM")
    restored["#canvas"].focus()
    restored.page.keyboard.press("e")
    expect(restored["#legend"]).to_be_hidden()


def test_where_no_error_is_known_the_page_says_why(user, address):
    user.open("night.png", png(SMALL))
    user.known_noise(20)
    user.restore()
    (job,) = user.page.request.get(f"{address}api/jobs").json()
    job["result"] |= {"error": False, "error_reason": "the model was calibrated for another operator"}
    user.page.route("**/api/jobs", lambda route: route.fulfill(json=[job]))
    user.page.reload()
    user["#tab-runs"].click()
    user["#runs .open"].click()
    expect(user["#errors"]).to_be_disabled()
    expect(user["#result-notes"]).to_contain_text("calibrated for another operator")


def test_error_map_and_patches_are_drawn_as_they_are_told(user, address):
    """With answers of the API that are known to the last pixel."""
    user.open("night.png", png(SMALL))
    user.known_noise(20)
    user.restore()
    (job,) = user.page.request.get(f"{address}api/jobs").json()
    job["result"] |= {"error": True, "max_error": 10.0, "unit_text": "in grey levels", "error_reason": ""}
    errors = np.zeros((48, 48), np.uint8)
    errors[:, 24:] = 255
    pixel = {
        "before": [70.0],
        "after": [60.0],
        "error": [2.5],
        "interval": {"0.5": [[58.0], [62.0]], "0.9": [[55.0], [66.5]]},
    }
    weights = [0.5, -0.25, 0.125]
    patches = [
        {"weight": weight, "source": "<i>a river</i>", "row": 3, "col": 4, "pixels": [[0, 1], [1, 0]]}
        for weight in weights
    ]
    explained = {
        "size": 2,
        "patches": patches,
        "restored": [[0, 1], [1, 0]],
        "pull": [[-0.5, 0.5], [0.5, -0.5]],
        "mean": 0.5,
        "total": 1234,
        "reproduces": 0.0,
    }
    place = {"row": 24, "col": 10}
    user.page.route("**/api/jobs", lambda route: route.fulfill(json=[job]))
    user.page.route("**/error.png*", lambda route: route.fulfill(body=png(errors), content_type="image/png"))
    user.page.route("**/pixel?*", lambda route: route.fulfill(json=place | pixel))
    user.page.route("**/explain?*", lambda route: route.fulfill(json=place | explained))
    user.page.reload()
    user["#tab-runs"].click()
    user["#runs .open"].click()
    expect(user["#errors"]).to_be_enabled()
    user.choose("after")
    user["#errors"].click()
    expect(user["#legend-ticks span"]).to_have_text(["0", "5", "10"])
    expect(user["#legend-words"]).to_have_text("Expected error in grey levels")
    stage, legend = user["#stage"].bounding_box(), user["#legend"].bounding_box()
    assert legend["y"] >= stage["y"] + stage["height"]  # it hides nothing of the picture
    user["#opacity"].focus()
    user.page.keyboard.press("End")
    shown = user.picture()
    height, width = shown.shape[:2]
    assert shown[height // 2, width // 2 - 40].tolist() == [0, 0, 4]
    assert shown[height // 2, width // 2 + 40].tolist() == [252, 255, 164]
    user.page.mouse.click(*user.point(0.4, 0.5))
    expect(user["#pixel-answer tbody td"]).to_have_text(["70", "60", "2.5"])
    expect(user["#pixel-answer .spread > b"]).to_have_text("55 – 67")
    expect(user["#pixel-answer .patches:not(.sum) p"]).to_have_text(["0.5", "−0.25", "0.13"])
    expect(user["#pixel-answer li.minus"]).to_have_count(1)
    expect(user["#pixel-answer"]).to_contain_text(
        "The 3 patches with the largest weights of 1,234, from <i>a river</i>."
    )
    corner = "(canvas) => [...canvas.getContext('2d').getImageData(1, 0, 1, 1).data]"
    for canvas in user["#pixel-answer .patches canvas"].all():
        assert canvas.evaluate(corner) == [255, 255, 255, 255]
    user.screenshot("desk-pixel")
    serious(user, "a pixel")


def test_a_pixel_by_keyboard(restored):
    restored["#row"].fill("5")
    restored["#col"].fill("64")
    restored["#col"].press("Enter")
    expect(restored["#pixel-words"]).to_have_text("Rows go from 0 to 63, columns from 0 to 63.")
    restored["#col"].fill("9")
    restored["#ask"].click()
    expect(restored["#place"]).to_contain_text(f"row 5, column 9: {NOISY[5, 9]} →")


def test_two_runs_side_by_side(user):
    user.open("night.png", png(SMALL))
    for sigma in (5, 40):
        user.known_noise(sigma)
        user.restore()
    user["#tab-runs"].click()
    expect(user["#runs li"]).to_have_count(2)
    for box in user["#runs input[type=checkbox]"].all():
        box.check()
    expect(user["#comparing"]).to_be_visible()
    expect(user["#tag-left"]).to_have_text("Denoise, σ 5")
    expect(user["#tag-right"]).to_have_text("Denoise, σ 40")
    user.choose("before")
    weak = user.picture()
    user.choose("after")
    strong = user.picture()
    assert np.abs(np.diff(weak, axis=0)).mean() > 1.3 * np.abs(np.diff(strong, axis=0)).mean()
    user.choose("side")
    user.screenshot("desk-compare")
    user["#canvas"].focus()
    user.page.keyboard.press("Escape")
    expect(user["#comparing"]).to_be_hidden()
    user.page.reload()  # the server remembers the runs of this visitor
    expect(user["#runs-count"]).to_have_text("2")
    user["#tab-runs"].click()
    user["#runs .open"].first.click()
    expect(user["#name"]).to_have_text("night.png")
    user.done()


def test_the_blur_is_built_drawn_or_read_and_always_shown(user):
    user.open("night.png", png(SMALL))
    user.choose("deblur")
    expect(user["#psf-words"]).to_have_text(re.compile(r"Motion, \d+ × \d+ pixels"))
    assert user["#psf-picture"].evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 8
    shown = user["#psf-picture"].get_attribute("src")
    user["#psf-length"].focus()
    user.page.keyboard.press("PageUp")
    expect(user["#psf-picture"]).not_to_have_attribute("src", shown)
    user.choose("drawn")
    expect(user["#psf-words"]).to_have_text("Draw the blur above.")
    expect(user["#preview-words"]).to_have_text("No preview: There is no blur yet")
    asked = len(user.requests)
    user.page.wait_for_timeout(400)
    assert len(user.requests) == asked  # the page does not ask again and again for a blur that is not there
    user["#restore"].click()
    expect(user["#alert-title"]).to_have_text("There is no blur yet")
    user["#psf-grid"].focus()
    for key in ("Enter", "ArrowRight", "Enter"):
        user.page.keyboard.press(key)
    expect(user["#psf-words"]).to_have_text("Drawn by hand, 21 × 21 pixels")
    user.known_noise(20)
    read_kernel(user, "k.npy", np.ones((3, 5)))  # of any scale
    user.screenshot("desk-blur")
    user.restore()
    expect(user["#result-title"]).to_have_text("Deblur")


def read_kernel(user, name, kernel):
    data = io.BytesIO()
    np.save(data, kernel)
    shown = user["#psf-picture"].get_attribute("src")
    user.page.set_input_files("#psf-file", [{"name": name, "mimeType": "", "buffer": data.getvalue()}])
    expect(user["#psf-picture"]).not_to_have_attribute("src", shown)
    expect(user["#psf-words"]).to_have_text(f"{name}, {kernel.shape[0]} × {kernel.shape[1]} pixels")


def test_a_mask_painted_with_a_brush(user, address):
    user.open("hole.png", png(scene(48)))
    user.choose("inpaint")
    expect(user["[value=paint]"]).to_be_checked()
    user.page.mouse.move(*user.point(0.45, 0.5))
    user.page.mouse.down()
    user.page.mouse.move(*user.point(0.55, 0.5), steps=5)
    user.page.mouse.up()
    red = user.picture()
    assert (red[..., 0] - red[..., 1]).max() > 60
    user.screenshot("desk-mask")
    user.restore()
    (job,) = user.page.request.get(f"{address}api/jobs").json()
    sent = user.page.request.get(f"{address}api/masks/{job['settings']['mask']}.png").body()
    mask = np.asarray(Image.open(io.BytesIO(sent)).convert("L"))
    assert mask.shape == (48, 48)
    assert set(np.unique(mask)) == {0, 255}
    _, data = user.save("#download-result")
    changed = np.asarray(Image.open(io.BytesIO(data))) != scene(48)
    assert changed.any()
    assert not (changed & (mask == 0)).any()
    user["#mask-undo"].click()
    user["#restore"].click()
    expect(user["#alert-title"]).to_have_text("Nothing is painted yet")


def test_estimates_appear_and_escape_stops_the_work(user):
    large = np.random.default_rng(0).integers(0, 255, (2400, 3000)).astype(np.uint8)
    user.open("large.png", png(large))
    user["#restore"].click()
    expect(user["#tag-right"]).to_be_visible()
    expect(user["#tag-right"]).to_contain_text("Estimate")
    expect(user["#progress"]).to_have_attribute("value", re.compile("[1-9]"))
    user.screenshot("desk-running")
    user.page.keyboard.press("Escape")
    expect(user["#said"]).to_have_text("Cancelled")
    expect(user["#restore"]).to_be_enabled()
    expect(user["#tag-right"]).to_be_hidden()


def test_a_bad_file_is_told_and_names_are_only_text(user):
    user.upload(("<img src=x onerror=alert(1)>.png", b"no picture"))
    expect(user["#alert"]).to_be_visible()
    expect(user["#alert-words"]).to_contain_text("<img src=x onerror=alert(1)>.png")
    user.screenshot("desk-bad-file")
    user.page.keyboard.press("Escape")
    expect(user["#alert"]).to_be_hidden()
    user.open("<b>bold<b>.png", png(SMALL))
    assert user["b"].count() == 0


@pytest.mark.parametrize("how", ["drop", "paste"])
def test_pictures_are_dropped_and_pasted(user, how):
    script = """([how, bytes]) => {
        const carried = new DataTransfer();
        carried.items.add(new File([new Uint8Array(bytes)], `${how}.png`, { type: "image/png" }));
        const kind = how === "drop" ? DragEvent : ClipboardEvent;
        const options = { bubbles: true, cancelable: true, dataTransfer: carried, clipboardData: carried };
        if (how === "drop") document.body.dispatchEvent(new kind("dragenter", options));
        const seen = !document.getElementById("dropping").hidden;
        document.body.dispatchEvent(new kind(how, options));
        return seen; }"""
    assert user.page.evaluate(script, [how, list(png(SMALL))]) == (how == "drop")
    expect(user["#name"]).to_have_text(f"{how}.png")
    expect(user["#dropping"]).to_be_hidden()


def test_single_pixels_of_a_picture_larger_than_its_preview(user):
    board = (np.indices((64, 2400)).sum(axis=0) % 2 * 255).astype(np.uint8)
    user.open("board.png", png(board))
    height, width = user.picture().shape[:2]
    assert abs(user.picture()[height // 2, width // 2 - 50 : width // 2 + 50].mean() - 128) < 40  # far away it is grey
    with user.page.expect_response(lambda answer: "max=2400" in answer.url):
        for _ in range(11):
            user["#zoom-in"].click()
    user.page.wait_for_timeout(100)
    near = user.picture()[height // 2 - 50 : height // 2 + 50, width // 2 - 50 : width // 2 + 50]
    assert set(np.unique(near)) == {0, 255}


def test_a_batch_with_its_own_list(user):
    user.upload(("one.png", png(SMALL)), ("broken.tif", b"no picture"), ("two.png", png(SMALL.T.copy())))
    rows = user["#pictures li"]
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_have_attribute("data-state", "refused")
    expect(user["#all-restore"]).to_have_text("Restore all 2")
    user.known_noise(20)
    user["#all-restore"].click()
    expect(user["#batch-words"]).to_have_text("2 of 3 restored.")
    for row in (0, 2):
        expect(rows.nth(row)).to_have_attribute("data-state", "done")
    expect(user["#all-download"]).to_be_enabled()
    name, data = user.save("#all-download")
    assert name == "slir.zip"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {name for name in archive.namelist() if not name.endswith(".json")} == {
            "one-denoised.png",
            "two-denoised.png",
        }
    user.screenshot("desk-batch")


def test_two_people_at_once(browser, address):
    people = [User(browser, address) for _ in range(2)]
    for number, person in enumerate(people):
        person.open(f"mine-{number}.png", png(scene(48, sigma=20, seed=number)))
        person.known_noise(20)
        person["#restore"].click()
    for number, person in enumerate(people):
        person.done()
        person["#tab-runs"].click()
        expect(person["#runs li"]).to_have_count(1)
        expect(person["#runs .open"]).to_have_text(f"mine-{number}.png")
    theirs = people[0]["#download-result"].get_attribute("href")
    assert people[0].page.request.get(f"{address.rstrip('/')}{theirs}").status == 200
    assert people[1].page.request.get(f"{address.rstrip('/')}{theirs}").status == 404
    for person in people:
        person.leave()


def test_a_photograph_stored_on_its_side_is_shown_upright(user):
    pixels = np.full((40, 60), 90, np.uint8)
    pixels[:, :30] = 200  # bright on the left as it is stored: at the top once it is turned
    exif = Image.Exif()
    exif[0x0112] = 6
    user.open("upright.png", png(pixels, exif=exif))
    expect(user["#facts"]).to_contain_text("40 × 60")
    picture = user.picture()
    height, width = picture.shape[:2]
    assert picture[height // 4, width // 2].tolist() == [200, 200, 200]
    assert picture[3 * height // 4, width // 2].tolist() == [90, 90, 90]
    user.page.mouse.move(*user.point(0.5, 0.04))
    row, col = map(int, re.findall(r"\d+", user["#place"].inner_text()))
    assert 15 <= row < 25  # what the file calls a column is down here
    assert col <= 3
    psfs = []
    user.page.on("request", lambda request: request.url.endswith("/api/psf") and psfs.append(request.post_data_json))
    user.choose("deblur")
    user.restore()
    assert psfs[-1] == {"kind": "motion", "length": 9, "angle": 120}  # 30 degrees, as it is stored
    expect(user["#said"]).to_contain_text("Deblur, motion 9 px, 30°")


def test_keys_are_told_and_can_be_switched_off(user):
    user.page.keyboard.press("?")
    expect(user["#shortcuts"]).to_be_visible()
    expect(user["#shortcut-list"]).to_contain_text("Before or after")
    user.screenshot("desk-keys")
    user["#keys-on"].uncheck()
    user.page.keyboard.press("Escape")
    expect(user["#shortcuts"]).to_be_hidden()
    user.page.keyboard.press("?")
    expect(user["#shortcuts"]).to_be_hidden()


def test_a_phone(browser, address):
    user = User(browser, address, size=PHONE, touch=True)
    user.screenshot("phone-welcome")
    user.open("night.png", png(SMALL))
    user.known_noise(20)
    user.restore()
    assert user.page.evaluate("() => document.documentElement.scrollWidth") == PHONE[0]
    canvas, button = user["#canvas"].bounding_box(), user["#restore"].bounding_box()
    assert canvas["width"] == PHONE[0]
    assert canvas["height"] > 300
    assert button["y"] + button["height"] < PHONE[1]  # always in reach
    before = user.zoom()
    touch = user.context.new_cdp_session(user.page)
    x, y = canvas["x"] + 120, canvas["y"] + 150
    for kind, apart in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80)):
        points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    expect(user["#zoom"]).not_to_have_text(f"{before:.0f} %")
    assert 2.5 < user.zoom() / before < 5
    user["#fit"].click()
    user["#errors"].click()
    expect(user["#opacity"]).to_be_in_viewport(ratio=1)
    user["#errors"].click()
    user.page.touchscreen.tap(*user.point(0.6, 0.5))
    expect(user["#pixel-answer tbody td"].first).to_be_in_viewport(ratio=1)
    expect(user["#pixel-answer .patches canvas"]).to_have_count(18)
    expect(user["#pixel-answer tbody td"].first).to_be_in_viewport(ratio=1)
    expect(user["#modes"]).to_be_in_viewport(ratio=1)
    user.screenshot("phone-result")
    serious(user, "a phone")
    user.sheet("settings")
    user.choose("deblur")
    user.choose("drawn")
    user["#psf-grid"].scroll_into_view_if_needed()
    seen = """(grid) => { const { left, top, height } = grid.getBoundingClientRect();
        return [0.02, 0.5, 0.98].map((down) => document.elementFromPoint(left + 9, top + down * height) === grid); }"""
    assert user["#psf-grid"].evaluate(seen) == [True, True, True]
    expect(user["#modes"]).to_be_in_viewport(ratio=1)
    user.screenshot("phone-blur")
    user.leave()


def test_settings_of_an_example_stay_with_it(user):
    user["#example-list button"].nth(2).click()
    expect(user["#name"]).to_have_text("unfocused.png")
    expect(user["#psf-words"]).to_contain_text("Defocus")
    user.open("mine.png", png(SMALL))
    expect(user["[value=denoise]"]).to_be_checked()
    user.known_noise(7)
    user.choose("deblur")
    expect(user["#noise"]).to_have_value("auto")
    expect(user["[value=motion]"]).to_be_checked()
    user.choose("inpaint")
    expect(user["#noise"]).to_have_value("0")  # known pixels are kept
    user.choose("denoise")
    expect(user["#noise"]).to_have_value("number")
    user["#tab-pictures"].click()
    user["#pictures .open"].first.click()
    expect(user["#psf-words"]).to_contain_text("Defocus")
    expect(user["#psf-radius"]).to_have_value("2.5")
    expect(user["[value=deblur]"]).to_be_checked()
    user["#pictures .open"].last.click()
    expect(user["[value=denoise]"]).to_be_checked()
    expect(user["#sigma"]).to_have_value("7")


def crop(user, name):
    """What a canvas of the preview shows."""
    data = user[f"#preview-{name}"].evaluate("(canvas) => canvas.toDataURL().split(',')[1]")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("L")).astype(float)


def roughness(pixels):
    return np.abs(np.diff(pixels, axis=0)).mean()


def test_the_strength_is_previewed_and_used(user, address):
    user.open("night.png", png(scene(96, sigma=15)))
    expect(user["#strength-words"]).to_contain_text("Found: some noise of about")
    assert 12 < float(re.search(r"about ([\d.]+\d)", user["#strength-words"].inner_text())[1]) < 18
    before, normal = crop(user, "before"), crop(user, "after")
    assert roughness(normal) < roughness(before) / 2
    shown = user["#preview-after"].evaluate("(canvas) => canvas.toDataURL()")
    user["#strength"].focus()
    with user.page.expect_response("**/api/previews"):
        user.page.keyboard.press("Home")
    user.page.wait_for_function("(was) => document.getElementById('preview-after').toDataURL() !== was", arg=shown)
    weak = crop(user, "after")
    assert roughness(normal) < roughness(weak) < roughness(before)
    user.screenshot("desk-preview")
    user.restore()
    (job,) = user.page.request.get(f"{address}api/jobs").json()
    assert (job["settings"]["sigma"], job["settings"]["strength"]) == ("auto", 0.5)
    expect(user["#result-words"]).to_contain_text("If grain is left, increase the strength.")
    with user.page.expect_request("**/api/previews") as asked:
        user["#zoom-in"].click()
        user["#canvas"].focus()
        user.page.keyboard.press("Shift+ArrowRight")
    assert asked.value.post_data_json["file"] == job["file"]


def test_a_preview_waits_for_a_server_that_is_busy(user):
    busy = {"title": "The server is busy", "status": 429}
    answers = iter([True])

    def route(route):
        if next(answers, False):
            route.fulfill(status=429, headers={"Retry-After": "1"}, json=busy)
        else:
            route.continue_()

    user.page.route("**/api/previews", route)
    user.open("night.png", png(SMALL))
    expect(user["#preview-words"]).to_have_text("The server is busy. The preview waits.")
    expect(user["#strength-words"]).to_contain_text("Found: ")
    expect(user["#preview-words"]).to_have_text("The middle of the view, before and after")


def test_the_result_is_told_in_plain_words(user):
    data = io.BytesIO()
    Image.fromarray(scene(96)).save(data, "JPEG", quality=90)
    user.open("holiday.jpg", data.getvalue())
    user.restore()
    expect(user["#result-words"]).to_contain_text("noise of about")
    expect(user["#result-words"]).to_contain_text("This is a JPEG")
    expect(user["#said"]).to_contain_text("was found")


def test_as_many_numbers_as_channels_or_one(user):
    script = """async () => { const { numbers } = await import("/static/dom.js");
        return [[1, 1, 2], [2, 2, 2], 3].map((value) => numbers(value)); }"""
    assert user.page.evaluate(script) == ["1, 1, 2", "2", "3"]


def test_a_blur_is_found_by_trying(user):
    user.open("shaken.png", png(SMALL))
    user.choose("deblur")
    user["#psf-angle"].fill("90")
    expect(user["#psf-words"]).to_contain_text("11 × 1")
    user["#psf-try"].click()
    cards = user["#trial-list button"]
    expect(cards).to_have_count(9)
    expect(user["#trial-list button:disabled"]).to_have_count(0)
    serious(user, "the trials")
    user.screenshot("desk-trials")
    user.named("#trial-list button", "9 px, 30°").click()
    expect(user.named("#trial-list button", "9 px, 10°")).to_be_visible()  # the next are closer
    expect(user["#psf-angle"]).to_have_value("30")
    user["#trials .primary"].click()
    expect(user["#trials"]).to_be_hidden()
    expect(user["#psf-words"]).not_to_contain_text("11 × 1")  # the PSF of these settings is there
    user.restore()
    expect(user["#result-facts"]).to_contain_text("motion 9 px, 30°")
    expect(user["#runs .what"]).to_contain_text("motion 9 px, 30°")
    expect(user["#result-facts dd"].last).to_have_text(re.compile(r"^[\d.]+(, [\d.]+, [\d.]+)?$"))


def test_planes_of_a_stack(user):
    planes = np.stack([np.full((48, 48), value, np.uint8) for value in (40, 120, 200)])
    data = io.BytesIO()
    tifffile.imwrite(data, planes, photometric="minisblack")
    user.open("stack.tif", data.getvalue())
    expect(user["#facts"]).to_contain_text("3 planes")
    for value, key in ((40, None), (120, "ArrowRight"), (200, "End")):
        if key:
            user["#plane"].focus()
            with user.page.expect_response(lambda answer: "plane=" in answer.url and "preview" in answer.url):
                user.page.keyboard.press(key)
            user.page.wait_for_timeout(100)
        height, width = user.picture().shape[:2]
        assert user.picture()[height // 2, width // 2].tolist() == [value] * 3
    user.known_noise(5)
    user.restore()
    user.choose("after")
    assert abs(user.picture()[height // 2, width // 2, 0] - 200) < 5
    expect(user["#errors"]).to_be_disabled()  # the map is of the first plane
    user["#row"].fill("3")
    user["#col"].fill("4")
    user["#ask"].click()
    expect(user["#pixel-answer tbody td"].first).to_have_text("200")
    user.screenshot("desk-stack")
    user.open("mine.png", png(SMALL))
    expect(user["#plane-row"]).to_be_hidden()


def test_floats_need_a_white_level(user, address):
    data = io.BytesIO()
    tifffile.imwrite(data, SMALL.astype(np.float32) / 255)
    user.open("floats.tif", data.getvalue())
    expect(user["#preview-words"]).to_have_text("No preview: The white level must be specified")
    expect(user["#alert"]).to_be_hidden()
    room = """(input) => { const style = getComputedStyle(input);
        const pen = document.createElement("canvas").getContext("2d");
        pen.font = style.font;
        const inner = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        return inner - pen.measureText(input.placeholder).width; }"""
    assert user["#white"].evaluate(room) > 0  # the placeholder is not cut
    user["#restore"].click()
    expect(user["#alert-title"]).to_have_text("The white level must be specified")
    expect(user["#white"]).to_be_focused()
    user.page.keyboard.type("1")
    user["#restore"].click()
    user.done()
    (job,) = user.page.request.get(f"{address}api/jobs").json()
    assert job["settings"]["data_range"] == 1


def test_no_serious_accessibility_finding(restored, user):
    serious(user, "the welcome")
    serious(restored, "a result")
    for task in ("deblur", "upsample", "inpaint"):
        restored.choose(task)
        serious(restored, task)
    restored.choose("denoise")
    restored["#tab-runs"].click()
    serious(restored, "the runs")
    restored["#tab-pictures"].click()
    serious(restored, "the pictures")
    restored["#tab-result"].click()
    user["#help"].click()
    serious(user, "the shortcuts")


def serious(user, where):
    """Fail where axe finds something serious on what is shown."""
    told = Axe().run(user.page).response
    assert len(told["passes"]) > 10, where  # it has looked
    found = [each for each in told["violations"] if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == [], where
