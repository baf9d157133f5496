"""The API of `slir serve`: everything that its page does, by a client that is no page."""

import json
import os
import signal
from io import BytesIO

import numpy as np
import pytest
import tifffile
from astropy.io import fits
from typer.testing import CliRunner

import slir
from serving import decoded, encoded, scene, serving
from slir.cli import app as commands
from slir.errors import SlirError
from slir.files.provenance import load
from slir.web import trust
from slir.web.store import Client

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(folder=tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def client(served):
    with served.client() as own:
        yield own


def test_info(client):
    told = client.get("/api/info").json()
    assert told["tasks"] == ["denoise", "deblur", "upsample", "inpaint"]
    assert ".png" in told["formats"]
    assert ".zarr" not in told["formats"]  # a folder, which cannot be sent
    assert {example["task"] for example in told["examples"]} == set(told["tasks"])
    assert told["limits"]["pixels"] == 50_000_000


def test_the_page_and_its_files(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    script = client.get("/static/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["cache-control"] == "no-cache"
    again = client.get("/static/main.js", headers={"If-None-Match": script.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize("colour", [False, True])
def test_a_restoration_from_upload_to_download(client, colour):
    pixels = scene(96, colour=colour)
    answer = client.post("/api/files", params={"name": "night sky.png"}, content=encoded(pixels))
    told = answer.json()
    assert (told["width"], told["height"], told["colour"], told["dtype"]) == (96, 96, colour, "uint8")
    assert np.array_equal(decoded(client.get(f"/api/files/{told['file']}/preview.png").content), pixels)
    small = decoded(client.get(f"/api/files/{told['file']}/preview.png", params={"max": 32}).content)
    assert small.shape[:2] == (32, 32)
    assert client.get(f"/api/files/{told['file']}").json() == told

    job = client.submit(told["file"], sigma=12)
    events = list(client.events(job))
    states = [data for kind, data in events if kind == "state"]
    previews = [data for kind, data in events if kind == "preview"]
    assert states[-1]["state"] == "done"
    assert states[-1]["name"] == "night sky.png"
    assert states[-1]["settings"]["sigma"] == 12
    stages = [state["stage"] for state in states]
    assert stages == sorted(stages)
    assert stages[-1] == states[-1]["stages"] > 0
    numbers = [data["stage"] for data in previews]
    assert numbers == sorted(set(numbers))
    result = states[-1]["result"]
    assert (result["width"], result["height"]) == (96, 96)
    assert np.allclose(result["sigma"], 12)
    assert result["unit_text"] == "pixel values, 0 to 255"

    download = client.get(f"/api/jobs/{job}/result")
    assert "night%20sky-denoised.png" in download.headers["content-disposition"]
    restored = decoded(download.content)
    assert np.array_equal(decoded(client.get(f"/api/jobs/{job}/preview.png").content), restored)
    pixel = client.get(f"/api/jobs/{job}/pixel", params={"row": 5, "col": 7}).json()
    assert pixel["after"] == np.ravel(restored[5, 7]).tolist()
    assert pixel["before"] == np.ravel(pixels[5, 7]).tolist()
    assert client.get("/api/jobs").json()[0]["job"] == job


def test_estimates_appear_while_it_works(client):
    """A preview that comes before the end is a picture, and less noisy than what was sent."""
    clean = scene(256, sigma=0).astype(float)
    file = client.upload(encoded(scene(256, sigma=25)))
    job = client.submit(file, task="upsample", sigma=25)  # several stages, so that some come before the end
    seen = []
    for kind, data in client.events(job):
        if kind == "preview" and not seen:
            answer = client.get(data["url"])
            if answer.status_code == 200:  # else it was done before we asked
                seen.append(decoded(answer.content))
    assert seen
    small = seen[0].reshape(256, 2, 256, 2).mean((1, 3))
    assert np.sqrt(np.mean((small - clean) ** 2)) < 20


CASES = {
    "night.png": ("denoise", {}, []),
    "photo.jpg": ("denoise", {"sigma": 10}, ["--sigma", "10"]),
    "cells.tif": ("denoise", {"sigma": "poisson-gaussian", "data_range": 4095},
                  ["--sigma", "poisson-gaussian", "--data-range", "4095"]),
    "shaken.png": ("deblur", {"sigma": 2, "psf": {"kind": "motion", "length": 5, "angle": 30}},
                   ["--sigma", "2", "--motion", "5,30"]),
    "Jürgen ☃.fits": ("deblur", {"sigma": 0.02, "psf": {"kind": "gaussian", "width": 1.2}, "data_range": [0, 1]},
                   ["--sigma", "0.02", "--gaussian", "1.2", "--data-range", "0,1"]),
    "small.png": ("upsample", {"factor": 3}, ["--factor", "3"]),
    "scan.png": ("inpaint", {}, ["--mask", "mask.png"]),
}  # fmt: skip


def _written(folder, name):
    """A picture in the format of the name."""
    path, pixels = folder / name, scene(48, seed=3)
    if path.suffix == ".tif":
        tifffile.imwrite(path, pixels.astype(np.uint16) * 16, resolution=(300, 300), description="cells", metadata=None)
    elif path.suffix == ".fits":
        fits.PrimaryHDU((pixels / 255).astype(np.float32)).writeto(path)
    else:
        path.write_bytes(encoded(pixels, {".png": "PNG", ".jpg": "JPEG"}[path.suffix], dpi=(300, 300)))
    return path


@pytest.mark.parametrize("name", CASES)
def test_the_download_is_what_the_command_line_writes(client, tmp_path, monkeypatch, name):
    task, settings, options = CASES[name]
    monkeypatch.chdir(tmp_path)
    path = _written(tmp_path, name)
    file = client.upload(path.read_bytes(), name)
    if "psf" in settings:
        settings = settings | {"psf": client.post("/api/psf", json=settings["psf"]).json()["psf"]}
    if task == "inpaint":
        mask = np.zeros((48, 48), np.uint8)
        mask[20:23, 5:40] = 255
        (tmp_path / "mask.png").write_bytes(encoded(mask))
        answer = client.post("/api/masks", params={"file": file}, content=encoded(mask))
        assert answer.json()["share"] == pytest.approx(3 * 35 / 48**2)
        settings = {"mask": answer.json()["mask"]}
    job = client.submit(file, task, **settings)
    assert client.finished(job)["state"] == "done"
    download = client.get(f"/api/jobs/{job}/result")
    own = json.loads(client.get(f"/api/jobs/{job}/sidecar").content)
    # The command in as many threads as the server's process, which the sidecar tells.
    words = [task, name, "-o", f"out{path.suffix}", "--threads", str(own["made"]["threads"]), *options]
    result = CliRunner().invoke(commands, words)
    assert result.exit_code == 0, result.output
    assert (tmp_path / f"out{path.suffix}").read_bytes() == download.content
    # The sidecar, saved beside both files, tells the same as the command's and can be used.
    theirs = json.loads((tmp_path / f"out{path.suffix}.json").read_text())
    assert own["settings"] == theirs["settings"]
    assert (own["input"], own["task"]) == (theirs["input"], theirs["task"])
    (tmp_path / own["output"]["path"]).write_bytes(download.content)
    beside = tmp_path / (own["output"]["path"] + ".json")
    beside.write_text(json.dumps(own))
    sidecar = load(beside)
    assert sidecar.changes() == []
    assert sidecar.is_own_output()
    assert sidecar.job().problem.task.name == task


def test_kernels(client, tmp_path):
    built = client.post("/api/psf", json={"kind": "defocus", "radius": 2.5}).json()
    assert (built["height"], built["width"]) == slir.psf.defocus(2.5).shape
    shown = decoded(client.get(f"/api/psf/{built['psf']}.png", params={"scale": 4}).content)
    assert shown.shape == (4 * built["height"], 4 * built["width"])
    assert shown.max() == 255
    drawn = client.post("/api/psf", json={"kind": "drawn", "pixels": [[0, 1, 0], [1, 2, 1], [0, 1, 0]]})
    assert drawn.json()["height"] == 3
    np.save(tmp_path / "k.npy", slir.psf.gaussian(1.0))
    sent = client.post("/api/psf", params={"name": "k.npy"}, content=(tmp_path / "k.npy").read_bytes())
    assert sent.status_code == 201


@pytest.mark.parametrize(
    ("kernel", "argument"),
    [
        ({"kind": "motion"}, "length"),
        ({"kind": "gaussian", "width": 1e9}, "width"),
        ({"kind": "drawn", "pixels": [[0, 0], [0, 0]]}, "kernel"),
        ({"kind": "drawn", "pixels": [[1], [1, 2]]}, "pixels"),
        ({"kind": "sinc"}, "kind"),
    ],
)
def test_kernels_that_are_none(client, kernel, argument):
    answer = client.post("/api/psf", json=kernel)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["argument"] == argument


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"task": "deblur"}, "psf"),
        ({"task": "inpaint"}, "mask"),
        ({"task": "denoise", "sigma": -1}, "sigma"),
        ({"task": "denoise", "sigma": "much"}, "sigma"),
        ({"task": "denoise", "data_range": [5, 1]}, "data_range"),
        ({"task": "upsample", "factor": 99}, "factor"),
        ({"task": "enhance"}, "task"),
        ({"task": "denoise", "colour": "blue"}, "colour"),
    ],
)
def test_settings_that_cannot_be_used(client, settings, argument):
    file = client.upload(encoded(scene()))
    answer = client.post("/api/jobs", json={"file": file, **settings})
    assert answer.status_code == 422
    assert answer.json()["argument"] == argument
    assert answer.json()["title"]


def test_floats_ask_for_their_range_at_once(client, tmp_path):
    tifffile.imwrite(tmp_path / "f.tif", scene().astype(np.float32) / 255)
    file = client.upload((tmp_path / "f.tif").read_bytes(), "f.tif")
    answer = client.post("/api/jobs", json={"file": file, "task": "denoise"})
    assert (answer.status_code, answer.json()["argument"]) == (422, "data_range")
    assert "white is 1" in answer.json()["remedy"]


@pytest.mark.parametrize("name", ["noisy", "shaken", "unfocused", "small", "scratched"])
def test_examples_come_with_what_mends_them(client, name):
    told = client.post(f"/api/examples/{name}").json()
    announced = next(each for each in client.get("/api/info").json()["examples"] if each["name"] == name)
    assert (told["width"], told["height"]) == (announced["width"], announced["height"])
    settings = told["settings"]
    if "psf" in settings:
        settings["psf"] = client.post("/api/psf", json=settings["psf"]).json()["psf"]
    answer = client.post("/api/jobs", json={"file": told["file"], **settings})
    assert answer.status_code == 202, answer.text
    if "mask" in settings:
        assert decoded(client.get(f"/api/masks/{settings['mask']}.png").content).max() == 255
    client.delete(f"/api/jobs/{answer.json()['job']}")


def test_cancel_stops_the_work(served, client):
    file = client.upload(encoded(scene(700)))
    job = client.submit(file, task="upsample", factor=2)  # five stages, between which work can stop
    client.until(job, "running")
    waiting = client.submit(file, sigma=12)
    assert client.get(f"/api/jobs/{waiting}").json()["position"] == 1
    assert client.post(f"/api/jobs/{waiting}/cancel").json()["state"] == "cancelled"
    assert client.post(f"/api/jobs/{job}/cancel").status_code == 202
    client.until(job, "cancelled")
    assert client.get(f"/api/jobs/{job}/result").status_code == 409
    assert not (served.folder / "jobs" / job).exists()
    again = client.submit(client.upload(encoded(scene())), sigma=12)  # and the next one is done
    assert client.finished(again)["state"] == "done"


def test_the_reader_that_is_killed_is_replaced(served, client):
    client.upload(encoded(scene()))
    process = served.server.readers.hands[0].process
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    client.upload(encoded(scene()))


def test_what_is_deleted_is_gone(served, client):
    file = client.upload(encoded(scene()))
    job = client.submit(file, sigma=12)
    client.finished(job)
    assert list((served.folder / "files").glob(f"{file}*"))
    assert client.delete(f"/api/files/{file}").status_code == 204
    assert not list((served.folder / "files").glob(f"{file}*"))
    assert client.get(f"/api/files/{file}/preview.png").status_code == 404
    assert client.get(f"/api/jobs/{job}/result").status_code == 200  # the result stays
    assert client.get(f"/api/jobs/{job}/pixel", params={"row": 1, "col": 1}).json()["before"] is None
    assert client.delete(f"/api/jobs/{job}").status_code == 204
    assert client.get(f"/api/jobs/{job}").status_code == 404
    assert not (served.folder / "jobs" / job).exists()


def test_a_place_beyond_the_edge(client):
    job = client.submit(client.upload(encoded(scene())), sigma=12)
    client.finished(job)
    for what in ("pixel", "explain"):
        answer = client.get(f"/api/jobs/{job}/{what}", params={"row": 64, "col": 0})
        assert (answer.status_code, answer.json()["argument"]) == (422, "row")


# --- how far a result may be trusted -------------------------------------------------------------------------------


class Known:
    """A result whose errors are known: as `slir.tasks.Result` tells them."""

    calibrated = ""

    def __init__(self, image, error):
        self.image, self.error_map = image, error

    def interval(self, level):
        if level > 0.8 and self.calibrated:
            raise SlirError("There is no interval.")
        half = self.error_map * (0.7 if level == 0.5 else 1.6)
        return self.image - half, self.image + half


@pytest.mark.parametrize("colour", [False, True])
def test_error_maps_and_intervals(served, client, colour):
    pixels = scene(48, colour=colour)
    job = client.submit(client.upload(encoded(pixels)), sigma=12)
    client.finished(job)
    assert client.get(f"/api/jobs/{job}/error.png").status_code == 409  # it was not requested
    assert "not requested" in client.get(f"/api/jobs/{job}/error.tif").json()["detail"]
    run = served.server.bench.get(job, Client(client.cookies["slir-session"]))
    error = np.linspace(0, 8, pixels.size, dtype=np.float32).reshape(pixels.shape)
    run.result.update(trust.keep(run.folder, Known(pixels.astype(np.float32), error)))
    assert client.get(f"/api/jobs/{job}").json()["result"]["max_error"] == 8
    shown = decoded(client.get(f"/api/jobs/{job}/error.png").content)
    wanted = error if not colour else np.sqrt((error**2).mean(-1))
    assert np.abs(shown - wanted * 255 / 8).max() <= 0.51
    assert decoded(client.get(f"/api/jobs/{job}/error.png", params={"max": 16}).content).shape == (16, 16)
    download = client.get(f"/api/jobs/{job}/error.tif")
    assert "picture-denoised-error.tif" in download.headers["content-disposition"]
    assert np.array_equal(tifffile.imread(BytesIO(download.content)), error)
    told = client.get(f"/api/jobs/{job}/pixel", params={"row": 40, "col": 3}).json()
    here = np.ravel(error[40, 3])
    assert np.allclose(told["error"], here)
    low, high = told["interval"]["0.9"]
    assert np.allclose(low, np.ravel(pixels[40, 3]) - 1.6 * here)
    assert np.allclose(high, np.ravel(pixels[40, 3]) + 1.6 * here)


def test_errors_that_are_not_calibrated_are_told_so(tmp_path):
    result = Known(np.ones((4, 4)), np.ones((4, 4)))
    result.calibrated = "another sigma"
    told = trust.keep(tmp_path, result)
    assert told["error"]
    assert (told["error_reason"], told["interval_reason"]) == ("another sigma", "another sigma")
    result.error_map = None
    assert trust.keep(tmp_path, result) == {"error": False, "error_reason": "another sigma"}


def test_a_worker_that_is_killed_costs_its_job_alone(served, client):
    """Its job is told so. The next process does the next job, and again what questions are asked about."""
    job = client.submit(client.upload(encoded(scene())), sigma=12, error_map=True)
    assert client.finished(job)["result"]["error"]
    question = {"url": f"/api/jobs/{job}/explain", "params": {"row": 20, "col": 30, "k": 4}}
    before = client.get(**question)
    large = client.submit(client.upload(encoded(scene(700))), sigma=12)
    client.until(large, "running")
    os.kill(served.server.bench._hands[0].process.pid, signal.SIGKILL)
    told = client.until(large, "failed")
    assert "died" in told["problem"]["title"]
    assert "memory" in told["problem"]["detail"]
    after = client.get(**question)
    assert after.json() == before.json()
    assert not (served.folder / "jobs" / job / "again").exists()
    found = after.json()
    assert np.shape(found["patches"][0]["pixels"]) == np.shape(found["restored"]) == (found["size"],) * 2
    weights = [abs(patch["weight"]) for patch in found["patches"]]
    assert len(weights) == 4
    assert weights == sorted(weights, reverse=True)


def test_missing_pixels_are_null(client, tmp_path):
    pixels = scene().astype(np.float32) / 255
    pixels[10:12, 20] = np.nan
    tifffile.imwrite(tmp_path / "n.tif", pixels)
    answer = client.post("/api/files", params={"name": "n.tif"}, content=(tmp_path / "n.tif").read_bytes())
    assert answer.json()["task_hint"] == "inpaint"
    job = client.submit(answer.json()["file"], "inpaint", mask="nan", data_range=1)
    assert client.finished(job)["state"] == "done"
    told = client.get(f"/api/jobs/{job}/pixel", params={"row": 10, "col": 20}).json()
    assert told["before"] == [None]
    assert 0 <= told["after"][0] <= 1
