"""What the page shows before and beside a whole restoration: crops restored at once, planes, results in one file."""

import base64
import json
import threading
import time
import zipfile
from io import BytesIO

import numpy as np
import pytest
import tifffile

import slir
from serving import decoded, encoded, scene, serving
from slir.web import archive, crops
from slir.web.crew import Hand, Stopped
from slir.web.problems import Names
from slir.web.questions import Question, Questions
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


def preview(client, file, task="denoise", **settings):
    answer = client.post("/api/previews", json={"file": file, "task": task, **settings})
    while answer.status_code == 429:  # the process that restores takes a moment to begin
        answer = client.post("/api/previews", json={"file": file, "task": task, **settings})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return told | {side: decoded(base64.b64decode(told[side])).astype(float) for side in ("before", "after")}


def test_a_preview_is_what_the_whole_becomes_there(client):
    pixels = scene(200, sigma=15)
    file = client.upload(encoded(pixels))
    told = preview(client, file, row=120, col=190)
    rows = slice(told["row"], told["row"] + told["height"])
    cols = slice(told["col"], told["col"] + told["width"])
    assert (told["height"], told["width"], cols.stop) == (crops.SIDE, crops.SIDE, 200)
    assert rows.start <= 120 < rows.stop
    assert np.array_equal(told["before"], pixels[rows, cols])
    whole = slir.denoise(pixels, sigma="auto", return_info=True)
    assert told["sigma"] == pytest.approx(whole.stats["sigma"], rel=1e-3)  # of the whole plane, not of the crop
    assert np.abs(told["after"] - whole.image[rows, cols]).mean() < 0.5
    weaker = preview(client, file, row=120, col=190, sigma=told["sigma"] / 2)
    assert weaker["sigma"] == pytest.approx(told["sigma"] / 2)
    assert np.abs(np.diff(weaker["after"])).mean() > 1.1 * np.abs(np.diff(told["after"])).mean()


def test_a_preview_of_camera_noise_is_what_the_whole_becomes_there(client):
    """Such noise is no single number: the noise of the whole, and how much of it is removed, hold for the crop."""
    noise = np.repeat(np.repeat(np.random.default_rng(0).normal(0, 14, (100, 100, 1)), 2, axis=0), 2, axis=1)
    pixels = (scene(200, colour=True, sigma=0) + noise).clip(0, 255).round().astype(np.uint8)
    file = client.upload(encoded(pixels))
    for strength in (1, 0.5):
        told = preview(client, file, row=100, col=100, strength=strength)
        rows, cols = (slice(told[side], told[side] + crops.SIDE) for side in ("row", "col"))
        whole = slir.denoise(pixels, strength=strength, channel_axis=-1, return_info="stats")
        assert "coarse noise" in told["noise"]
        assert told["noise"] == whole.stats["noise"]
        assert np.abs(told["after"] - whole.image[rows, cols]).max() <= 1


def test_previews_of_a_blur_and_of_an_enlargement(client):
    clean = scene(128, colour=True, sigma=0)
    file = client.upload(encoded(clean))
    small = preview(client, file, "upsample", row=0, col=0, factor=2)
    assert small["before"].shape == (72, 72, 3)
    assert small["after"].shape == (144, 144, 3)
    psf = client.post("/api/psf", json={"kind": "defocus", "radius": 2}).json()["psf"]
    sharp = preview(client, file, "deblur", row=64, col=64, psf=psf, border="circular", sigma=1)
    assert np.abs(np.diff(sharp["after"], axis=0)).mean() > np.abs(np.diff(sharp["before"], axis=0)).mean()


@pytest.mark.parametrize(
    ("asked", "argument"),
    [
        ({"row": 64, "col": 0}, "row"),
        ({"row": 0, "col": 0, "plane": 1}, "plane"),
        ({"row": 0, "col": 0, "task": "deblur"}, "psf"),
        ({"row": 0, "col": 0, "task": "inpaint"}, "task"),
        ({"row": 0, "col": 0, "sigma": 1e9}, "sigma"),
    ],
)
def test_previews_that_cannot_be(client, asked, argument):
    file = client.upload(encoded(scene()))
    answer = client.post("/api/previews", json={"file": file, "task": "denoise", **asked})
    assert (answer.status_code, answer.json()["argument"]) == (422, argument)


def test_previews_are_of_own_pictures_alone(served, client):
    file = client.upload(encoded(scene()))
    with served.client() as other:
        answer = other.post("/api/previews", json={"file": file, "task": "denoise", "row": 0, "col": 0})
    assert answer.status_code == 404


def test_the_newest_question_of_a_client_replaces_the_one_that_waits(tmp_path):
    waiting, names = Questions(), Names({}, tmp_path)
    one, two = Client("1" * 32), Client("2" * 32)
    mine, hand = Hand(serve=None), Hand(serve=None)
    old = Question(one, "preview", (1,), names)
    kept = [Question(one, "explain", (2,), names, hand), Question(two, "preview", (3,), names)]
    new = Question(one, "preview", (4,), names)
    for question in (old, *kept, new):
        waiting.add(question)
    with pytest.raises(Stopped):
        old.answer.result(timeout=0)
    assert len(waiting) == 3
    assert [waiting.next(mine) for _ in range(3)] == [kept[1], new, None]  # the first is another process's
    assert waiting.next(hand) is kept[0]


def test_previews_do_not_keep_jobs_waiting(served, client):
    """A client that asks without a pause, and another whose job is done between two answers."""
    file, stop = client.upload(encoded(scene(96))), threading.Event()
    answers = []

    def ask():
        body = {"file": file, "task": "denoise", "row": 5, "col": 5, "sigma": 10}
        while not stop.is_set():
            answers.append(client.post("/api/previews", json=body).status_code)

    people = [threading.Thread(target=ask) for _ in range(3)]
    for person in people:
        person.start()
    try:
        with served.client() as other:
            begun = time.monotonic()
            job = other.submit(other.upload(encoded(scene(32))), sigma=12)
            assert other.finished(job)["state"] == "done"
            assert time.monotonic() - begun < 20
    finally:
        stop.set()
        for person in people:
            person.join()
    assert set(answers) <= {200, 429}
    assert 200 in answers


# --- planes --------------------------------------------------------------------------------------------------------


def test_every_plane_of_a_stack_is_shown_and_inspected(served, client):
    planes = np.stack([scene(48, seed=seed) for seed in range(3)])
    data = BytesIO()
    tifffile.imwrite(data, planes, photometric="minisblack")
    file = client.upload(data.getvalue(), "stack.tif")
    job = client.submit(file, sigma=12, error_map=True)
    assert client.finished(job)["state"] == "done"
    restored = tifffile.imread(BytesIO(client.get(f"/api/jobs/{job}/result").content))
    for plane in (0, 2):
        shown = [client.get(f"/api/{path}/preview.png", params={"plane": plane}) for path in
                 (f"files/{file}", f"jobs/{job}")]  # fmt: skip
        for answer, wanted in zip(shown, (planes, restored)):
            assert np.array_equal(decoded(answer.content), wanted[plane])
        place = {"row": 7, "col": 9, "plane": plane}
        told = client.get(f"/api/jobs/{job}/pixel", params=place).json()
        assert (told["before"], told["after"]) == ([planes[plane, 7, 9]], [restored[plane, 7, 9]])
        assert (told["error"] is None) == (plane > 0)  # the error map is of the first plane
        explained = client.get(f"/api/jobs/{job}/explain", params={**place, "k": 2}).json()
        assert len(explained["patches"]) == 2
    assert not list(served.folder.rglob("*.plane.png"))
    for path in (f"files/{file}/preview.png?plane=3", f"jobs/{job}/pixel?row=0&col=0&plane=3"):
        assert client.get(f"/api/{path}").json()["argument"] == "plane"
    last = preview(client, file, row=0, col=0, plane=2)
    assert np.array_equal(last["before"], planes[2])


# --- results in one file -------------------------------------------------------------------------------------------


def test_results_in_one_archive(served, client):
    jobs = []
    for name, seed in (("night.png", 1), ("night.png", 2), ("day.png", 3)):
        jobs.append(client.submit(client.upload(encoded(scene(32, seed=seed)), name), sigma=12))
        assert client.finished(jobs[-1])["state"] == "done"
    answer = client.get("/api/results.zip", params={"job": jobs})
    assert "slir.zip" in answer.headers["content-disposition"]
    with zipfile.ZipFile(BytesIO(answer.content)) as found:
        assert found.testzip() is None
        names = ["night-denoised.png", "night-denoised-2.png", "day-denoised.png"]
        assert sorted(found.namelist()) == sorted([*names, *(f"{name}.json" for name in names)])
        for job, name in zip(jobs, names):
            assert found.read(name) == client.get(f"/api/jobs/{job}/result").content
            assert json.loads(found.read(f"{name}.json"))["output"]["path"] == name
    with served.client() as other:
        assert other.get("/api/results.zip", params={"job": jobs}).status_code == 404
    assert client.get("/api/results.zip").status_code == 422
    assert client.get("/api/results.zip", params={"job": ["0" * 32] * 257}).status_code == 422


def test_an_archive_is_never_held_whole(served, client, monkeypatch):
    job = client.submit(client.upload(encoded(scene(64))), sigma=12)
    client.finished(job)
    run = served.server.bench.get(job, Client(client.cookies["slir-session"]))
    monkeypatch.setattr(archive, "PIECE", 100)
    pieces = list(archive._zipped([run]))
    assert max(map(len, pieces)) < 5000  # a piece and what the archive says of it, or a sidecar
    assert len(pieces) > run.job.output.stat().st_size / 100
    with zipfile.ZipFile(BytesIO(b"".join(pieces))) as found:
        assert found.testzip() is None


# --- what a job was ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "blur"),
    [
        ({"kind": "motion", "length": 5, "angle": 30}, {"kind": "motion", "length": 5, "angle": 30}),
        ({"kind": "drawn", "pixels": [[0, 1], [1, 2]]}, {"kind": "drawn"}),
    ],
)
def test_jobs_name_their_blur(client, kernel, blur):
    file = client.upload(encoded(scene(32)))
    psf = client.post("/api/psf", json=kernel).json()["psf"]
    job = client.submit(file, "deblur", psf=psf, sigma=5)
    told = client.get(f"/api/jobs/{job}").json()
    assert {name: value for name, value in told["blur"].items() if name in blur} == blur
    assert told["orientation"] == 1
    client.delete(f"/api/jobs/{job}")


def test_examples_have_pictures(client):
    for example in client.get("/api/info").json()["examples"]:
        picture = decoded(client.get(f"/api/examples/{example['name']}.png").content)
        assert picture.shape == (128, 128, 3)
    assert client.get("/api/examples/none.png").status_code == 404
