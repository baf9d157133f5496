"""`slir serve` among strangers: names, origins, tokens, limits, damaged files, and what is left behind."""

import asyncio
import contextlib
import errno
import io
import itertools
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
import schemathesis
import tifffile
from astropy.io import fits
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import FlakyStrategyDefinition
from PIL import Image

import corpus
from serving import encoded, scene, serving
from sieging import siege
from slir import io as slir_io
from slir.errors import FileError, InputError
from slir.web import connections, crew, guard, readers, work
from slir.web.problems import Names, Problem
from slir.web.settings import Settings
from slir.web.store import (
    Client,
    Kernel,
    Mask,
    Store,
    Upload,
    clear_stale,
    new_id,
    private_folder,
    shown_name,
    suffix_of,
)
from test_malformed import handmade

pytestmark = pytest.mark.usefixtures("one_thread")
TOKEN = "correcthorsebatterystaple"
ID = "0" * 32


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with small limits, whose workers are never needed."""
    place = tmp_path_factory.mktemp("served")
    with serving(folder=place, bytes=400_000, pixels=300_000, queue=2, per_client=2, files=3, seconds=60) as running:
        yield running


@pytest.fixture
def client(served):
    with served.client() as own:
        yield own


# --- who may talk to it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "192.168.1.5", "localhost.evil.example"]
)
def test_other_names_are_turned_away(client, host):
    answer = client.get("/api/info", headers={"Host": host})
    assert answer.status_code in (400, 421)  # an empty one the HTTP parser may refuse before us


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:9999"])
def test_names_of_this_machine_are_its_own(client, host):
    assert client.get("/api/info", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[::1"},
        {"Origin": "//["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/files?name=a.png"), ("POST", "/api/jobs"), ("DELETE", f"/api/jobs/{ID}"), ("POST", "/api/psf")],
)
def test_other_pages_may_change_nothing(client, headers, method, path):
    answer = client.request(method, path, headers=headers, content=b"{}")
    assert answer.status_code == 403
    assert "another page" in answer.json()["title"]


def test_our_page_may(served, client):
    answer = client.post("/api/psf", headers={"Origin": served.address}, json={"kind": "gaussian", "width": 1})
    assert answer.status_code == 201
    assert "access-control-allow-origin" not in answer.headers


def test_every_answer_guards_the_browser(client):
    for path in ("/", "/static/main.js", "/api/info", "/api/nothing", f"/api/jobs/{ID}", "/api/openapi.json"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    cookie = httpx.get(client.base_url.join("/api/info")).headers["set-cookie"]
    assert re.fullmatch(r"slir-session=[0-9a-f]{32}; Path=/; HttpOnly; SameSite=Strict", cookie)


def test_paths_lead_nowhere(client):
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/",
    ):
        answer = client.get(path)
        assert answer.status_code in (404, 405), path
        assert "create_app" not in answer.text
    for id in ("..", "%2e%2e%2f", "a" * 31, "A" * 32, ID + "0", "../../etc/passwd"):
        assert client.get(f"/api/files/{id}").status_code in (404, 422)


def test_a_token(tmp_path):
    with serving(folder=tmp_path, token=TOKEN) as served, served.client() as client:
        assert client.get("/api/info").status_code == 401
        assert client.get("/static/main.js").status_code == 401
        assert client.post("/api/psf", json={"kind": "gaussian", "width": 1}).status_code == 401
        page = client.get("/", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["www-authenticate"]) == (401, "Bearer")
        assert "token" in page.text
        assert client.get("/api/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        for wrong in (f"Bearer {TOKEN}x", "Bearer", f"Basic {TOKEN}", "Bearer \xff\xfe"):
            assert client.get("/api/info", headers={"Authorization": wrong.encode("latin-1")}).status_code == 401
        assert client.get("/", params={"token": "wrong"}).status_code == 401
        answer = client.get(f"{served.address}//evil.example/", params={"token": TOKEN, "a": "1"})
        assert answer.status_code == 303
        assert answer.headers["location"] == "/evil.example/?a=1"
        cookie = next(value for value in answer.headers.get_list("set-cookie") if value.startswith("slir-key="))
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        assert client.get("/api/info").status_code == 200  # by the cookie alone


def test_addresses_that_others_reach_have_a_token():
    assert Settings().safe().token is None
    assert Settings(host="localhost").is_local
    assert Settings(host="::1").is_local
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        made = Settings(host=host).safe().token
        assert re.fullmatch("[0-9a-f]{32}", made)
        assert made != Settings(host=host).safe().token
    for token in ("short", "with spaces in between", ""):
        with pytest.raises(InputError, match="token must be 16 or more letters and digits"):
            Settings(token=token)


# --- one client and another ----------------------------------------------------------------------------------------


def test_nobody_sees_what_another_sent(served, client):
    file = client.upload(encoded(scene()))
    job = client.submit(file, sigma=12)
    psf = client.post("/api/psf", json={"kind": "gaussian", "width": 1}).json()["psf"]
    mask = client.post("/api/masks", params={"file": file}, content=encoded(scene() // 255)).json()["mask"]
    with served.client() as other:
        paths = [
            f"/api/files/{file}",
            f"/api/files/{file}/preview.png",
            f"/api/psf/{psf}.png",
            f"/api/masks/{mask}.png",
        ]
        own = f"/api/jobs/{job}"
        paths += [own, f"{own}/events", f"{own}/preview.png", f"{own}/result", f"{own}/sidecar", f"{own}/error.png"]
        paths += [f"{own}/error.tif", f"{own}/pixel?row=0&col=0", f"{own}/explain?row=0&col=0"]
        assert {path: other.get(path).status_code for path in paths} == dict.fromkeys(paths, 404)
        assert other.delete(own).status_code == other.post(f"{own}/cancel").status_code == 404
        assert other.delete(f"/api/files/{file}").status_code == 404
        assert other.post("/api/jobs", json={"file": file, "task": "denoise"}).status_code == 404
        mine = other.upload(encoded(scene()))
        assert other.post("/api/jobs", json={"file": mine, "task": "deblur", "psf": psf}).status_code == 404
        assert other.post("/api/jobs", json={"file": mine, "task": "inpaint", "mask": mask}).status_code == 404
        assert other.post("/api/masks", params={"file": file}, content=b"x").status_code == 404
        assert other.get("/api/jobs").json() == []
    client.delete(own)


# --- limits --------------------------------------------------------------------------------------------------------


def test_a_file_that_is_too_long(served, client):
    before = sorted((served.folder / "files").iterdir())
    answer = client.post("/api/files", params={"name": "a.png"}, content=bytes(400_001))
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")

    def endless():  # says no length beforehand
        yield from itertools.repeat(bytes(50_000), 100)

    with contextlib.suppress(httpx.WriteError):  # the server may hang up before all is sent
        assert client.post("/api/files", params={"name": "a.png"}, content=endless()).status_code == 413
    assert client.post("/api/jobs", content=b"[" * 2_000_000).status_code == 413
    assert sorted((served.folder / "files").iterdir()) == before


def half_headers(port, count, source="127.0.0.1"):
    """Connections on which a request begins and never ends."""
    lines = []
    for _ in range(count):
        lines.append(socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(source, 0)))
        lines[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    return lines


def test_half_headers_keep_nobody_out(served):
    """Not even from the same address; and in all there are never more connections than the server takes."""
    lines = [line for number in range(1, 6) for line in half_headers(served.port, 70, f"127.0.0.{number}")]
    try:
        with served.client() as client:
            assert client.get("/api/info").status_code == 200
        assert len(served.uvicorn.server_state.connections) < connections.MOST
        for source in ("127.0.0.1", "127.0.0.77"):
            held = Counter(own.address for own in served.uvicorn.server_state.connections)
            assert max(held.values()) <= connections.MOST_OF_ONE
            with socket.create_connection(("127.0.0.1", served.port), 5, (source, 0)) as line:
                line.sendall(b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert line.recv(12) == b"HTTP/1.1 200"
    finally:
        for line in lines:
            line.close()


def test_connections_at_work_are_not_closed_for_others(served, client, monkeypatch):
    monkeypatch.setattr(connections, "MOST_OF_ONE", 3)
    file = client.upload(encoded(scene()))
    with contextlib.ExitStack() as stack:
        with served.server.bench._hands[0]._busy:  # as if it worked on something long
            job = client.submit(file, sigma=0)
            told = stack.enter_context(client.stream("GET", f"/api/jobs/{job}/events")).iter_lines()
            assert next(told).startswith("event: ")
            for line in half_headers(served.port, 8):
                line.close()
        assert any('"done"' in line for line in told)


def test_a_header_or_a_body_that_does_not_come(served, client, monkeypatch):
    monkeypatch.setattr(connections, "SECONDS", 0.3)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.3)
    (line,) = half_headers(served.port, 1)
    silent = socket.create_connection(("127.0.0.1", served.port), timeout=5)
    again = socket.create_connection(("127.0.0.1", served.port), timeout=5)
    again.sendall(b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert again.recv(10_000).startswith(b"HTTP/1.1 200")
    again.sendall(b"GET /api/info HTTP/1.1\r\nHost: ")
    for slow in (line, silent, again):
        with slow, contextlib.suppress(ConnectionResetError):
            assert not [1 for _ in range(3) if slow.recv(10_000).startswith(b"HTTP")]  # closed, with nothing to read
    for path in ("/api/files?name=a.png", "/api/jobs"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=5) as line:
            line.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n".encode())
            line.sendall(b"Content-Type: application/json\r\n\r\nhalf")
            assert line.recv(12) == b"HTTP/1.1 408"
    job = client.submit(client.upload(encoded(scene(300))), sigma=12)
    assert client.finished(job)["state"] == "done"  # whoever follows a job sends nothing for long


def test_a_picture_with_too_many_pixels(client):
    answer = client.post("/api/files", params={"name": "a.png"}, content=encoded(scene(600) * 0))
    assert answer.status_code == 413
    assert "300,000" in answer.json()["detail"]
    small = client.upload(encoded(scene(200)))
    answer = client.post("/api/jobs", json={"file": small, "task": "upsample", "factor": 3})
    assert (answer.status_code, answer.json()["argument"]) == (422, "factor")


def test_too_many_jobs(served):
    """A client may have two, and two may wait in all; whoever is refused is told to come back."""
    hand = served.server.bench._hands[0]
    clients = [served.client() for _ in range(4)]
    with hand._busy:  # as if it worked on something long
        jobs = []
        for own in clients[:3]:
            file = own.upload(encoded(scene()))
            jobs.append(own.submit(file, sigma=12))
            if own is clients[0]:
                own.until(jobs[0], "running")
        file = clients[3].upload(encoded(scene()))
        answer = clients[3].post("/api/jobs", json={"file": file, "task": "denoise"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        assert "2 jobs are already waiting" in answer.json()["detail"]
        clients[1].post(f"/api/jobs/{jobs[1]}/cancel")
        clients[3].submit(file, sigma=12)
        clients[2].post(f"/api/jobs/{jobs[2]}/cancel")
        clients[0].submit(clients[0].upload(encoded(scene())), sigma=12)
        answer = clients[0].post("/api/jobs", json={"file": clients[0].upload(encoded(scene())), "task": "denoise"})
        assert answer.status_code == 429
        assert "of your jobs" in answer.json()["detail"]
    assert clients[0].finished(jobs[0])["state"] == "done"
    for own in clients:
        for told in own.get("/api/jobs").json():
            own.finished(told["job"])
        own.close()


def test_the_oldest_files_make_room(client):
    files = [client.upload(encoded(scene(seed=seed))) for seed in range(4)]
    assert client.get(f"/api/files/{files[0]}").status_code == 404
    assert [client.get(f"/api/files/{file}").status_code for file in files[1:]] == [200] * 3


def test_memory_or_time_that_runs_out_is_told(tmp_path):
    with serving(folder=tmp_path, memory=500 * 2**20) as served, served.client() as client:
        job = client.submit(client.upload(encoded(scene(2000))), sigma=12)
        told = client.finished(job)
        assert told["state"] == "failed"
        assert "memory" in f"{told['problem']['title']} {told['problem'].get('detail', '')}".lower()
        bench = served.server.bench
        bench.settings = replace(bench.settings, seconds=0.1)
        bench._hands[0].kill()
        bench._hands[0].memory = None
        told = client.finished(client.submit(client.upload(encoded(scene(400))), sigma=12))
        assert told["state"] == "failed"
        assert "0.1 seconds" in told["problem"]["detail"]
        assert client.get("/api/info").status_code == 200


def test_results_make_room_for_files(served, client):
    """Those that nobody has looked at for longest go first; where none is left, files are refused."""
    while served.server.bench.forget_oldest():
        pass  # what other tests have left
    file = client.upload(encoded(scene()))
    jobs = [client.submit(file, sigma=0) for _ in range(2)]
    assert [client.finished(job)["state"] for job in jobs] == ["done"] * 2
    client.get(f"/api/jobs/{jobs[0]}/result")
    own, before = served.server.store, served.server.store.settings
    held = sum(path.stat().st_size for path in served.folder.rglob("*"))
    try:
        own.settings = replace(before, disk=held)
        client.upload(encoded(scene()))
        assert client.get(f"/api/jobs/{jobs[1]}").status_code == 404
        assert client.get(f"/api/jobs/{jobs[0]}").status_code == 200
        own.settings = replace(before, disk=1)
        answer = client.post("/api/files", params={"name": "a.png"}, content=encoded(scene()))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    finally:
        own.settings = before
    client.upload(encoded(scene()))


def test_what_cannot_fit_costs_nobody_a_result(served, client):
    """Nor does a body that is announced and never comes."""
    job = client.submit(client.upload(encoded(scene())), sigma=0)
    assert client.finished(job)["state"] == "done"
    own, before = served.server.store, served.server.store.settings
    head = "POST /api/{}?name=a.png HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n"
    try:
        for path, length, status in (("files", 10**13, b"413"), ("psf", 400_001, b"413"), ("files", 390_000, b"429")):
            own.settings = replace(before, disk=sum(path.stat().st_size for path in served.folder.rglob("*")))
            with socket.create_connection(("127.0.0.1", served.port), timeout=5) as line:
                line.sendall(head.format(path, length).encode())
                assert line.recv(12) == b"HTTP/1.1 " + status
        # This would fit if the results went, but it never comes.
        held = served.server.bench.finished_bytes()
        with socket.create_connection(("127.0.0.1", served.port), timeout=5) as line:
            line.sendall(head.format("files", held).encode())
            time.sleep(0.3)
        assert client.get(f"/api/jobs/{job}/result").status_code == 200
    finally:
        own.settings = before
    client.delete(f"/api/jobs/{job}")


def test_a_job_that_is_refused_costs_nobody_a_result(served, client):
    own, before = served.server.store, served.server.store.settings
    file = client.upload(encoded(scene()))
    done = client.submit(file, sigma=0)
    assert client.finished(done)["state"] == "done"
    with served.server.bench._hands[0]._busy:  # as if it worked on something long
        waiting = [client.submit(file, sigma=12) for _ in range(2)]
        try:
            own.settings = replace(before, disk=sum(path.stat().st_size for path in served.folder.rglob("*")))
            assert client.post("/api/jobs", json={"file": file, "task": "denoise"}).status_code == 429
        finally:
            own.settings = before
        assert client.get(f"/api/jobs/{done}/result").status_code == 200
    for job in (*waiting, done):
        client.delete(f"/api/jobs/{job}")


def test_examples_and_kernels_make_room_too(served, client):
    own, before = served.server.store, served.server.store.settings
    asks = [("/api/examples/scratched", None), ("/api/psf", {"kind": "gaussian", "width": 9})]
    try:
        for path, body in asks:
            job = client.submit(client.upload(encoded(scene(500))), sigma=0)
            assert client.finished(job)["state"] == "done"
            while len(served.server.bench.finished()) > 1:
                served.server.bench.forget_oldest()
            own.settings = replace(before, disk=sum(path.stat().st_size for path in served.folder.rglob("*")))
            assert client.post(path, json=body).status_code == 201
            assert client.get(f"/api/jobs/{job}").status_code == 404
            own.settings = replace(before, disk=1)
            assert client.post(path, json=body).status_code == 429
            own.settings = before
    finally:
        own.settings = before


def test_clients_without_a_cookie_have_a_limit_in_all(tmp_path):
    """Each of their requests is a new client's. They push out what came from the same address, nothing of others."""
    store = Store(tmp_path, Settings(folder=tmp_path, items=6, files=3))

    def sent(kind, address, *more):
        id = new_id()
        item = kind(id, Client(new_id(), address), tmp_path / "files" / id, *more)
        item.path.write_bytes(bytes(10))
        store.add(item)
        return item

    others = [sent(Mask, "10.0.0.9", 0.5, (8, 8)), sent(Upload, "10.0.0.9", "a.png"), sent(Kernel, "10.0.0.8", "drawn")]
    mine = [sent(Kernel, "10.0.0.1", "drawn") for _ in range(20)]
    assert all(store.get(type(item), "", item.id, item.owner) is item for item in [*others, *mine[-3:]])
    assert len(store._items) == 6
    assert {path.name for path in (tmp_path / "files").iterdir()} == {item.id for item in [*others, *mine[-3:]]}


def test_kernels_take_no_memory_of_the_server(served, client):
    psf = client.post("/api/psf", json={"kind": "gaussian", "width": 9}).json()["psf"]
    (kernel,) = (item for item in served.server.store._items.values() if item.id == psf)
    assert not any(isinstance(value, np.ndarray) for value in vars(kernel).values())
    assert kernel.values.sum() == pytest.approx(1)


def test_a_disk_that_is_full_is_no_bug_and_tells_no_path(served, client, monkeypatch):
    before = sorted(served.folder.rglob("*"))

    def full(path, data):
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    for path in ("/api/examples/noisy", "/api/psf"):
        answer = client.post(path, json={"kind": "gaussian", "width": 1})
        assert (answer.status_code, answer.json()["title"]) == (429, "The disk is full")
    assert sorted(served.folder.rglob("*")) == before


def refused_by_the_crew(error):
    def skill(tell):
        try:
            raise error
        except OSError as reason:
            raise FileError(error.filename, f"cannot be written ({reason})", "Make room.") from reason

    kind, fields = crew._answer(skill, (), None)
    assert kind == "refused"
    return fields


def test_what_the_crew_says_of_a_disk_tells_no_path(tmp_path):
    part = tmp_path / "jobs" / ID / ".slir-x" / "out.part"
    assert refused_by_the_crew(OSError(errno.ENOSPC, "No space left", str(part)))["title"] == "The disk is full"
    names = Names({tmp_path / "jobs" / ID / f"{ID}.png": "night.png"}, tmp_path)
    told = Problem.of(refused_by_the_crew(OSError(errno.EIO, "Input/output error", str(part))), names).body
    assert "Input/output error" in told["detail"]
    assert str(tmp_path) not in str(told)
    assert names.told(f"{tmp_path} is gone") == "the server's folder is gone"


def test_what_nobody_looks_at_is_removed(served, client):
    file = client.upload(encoded(scene()))
    job = client.submit(file, sigma=12)
    client.finished(job)
    own = served.server
    late = time.monotonic() + own.settings.expiry + 1
    own.store.expire(late)
    assert client.get(f"/api/files/{file}").status_code == 404
    own.bench.get(job, Client(client.cookies["slir-session"])).used -= own.settings.expiry + 1
    own.bench.tidy()
    assert client.get(f"/api/jobs/{job}").status_code == 404
    assert not list(served.folder.rglob(f"*{file}*"))
    assert not list(served.folder.rglob(f"*{job}*"))


# --- files ---------------------------------------------------------------------------------------------------------


NAMES = ["../../etc/passwd.png", "..\\..\\boot.png", "/etc/cron.d/x.png", "a\0b.png", "a\nb.png",
         "<script>alert(1)</script>.png",
         "💣" * 400 + ".png", "-o.png", "CON.png", ".png", "a" * 900 + ".png"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files_never_become_paths(served, client, name):
    answer = client.post("/api/files", params={"name": name}, content=encoded(scene()))
    assert answer.status_code in (201, 422), answer.text
    if answer.status_code == 201:
        told = answer.json()
        assert not set("/\\\0\n") & set(told["name"])
        assert len(told["name"]) <= 120
        job = client.submit(told["file"], sigma=0)
        assert client.finished(job)["state"] == "done"
        header = client.get(f"/api/jobs/{job}/result").headers["content-disposition"]
        assert not re.search(r"[\x00-\x1f<>]", header)
        client.delete(f"/api/jobs/{job}")
    random = re.compile(r"[0-9a-f]{32}(\.\w+)*")
    assert all(
        random.fullmatch(path.name) for part in ("files", "jobs", "masks") for path in (served.folder / part).iterdir()
    )


def test_names():
    assert shown_name("../a b.PNG") == "a b.PNG"
    assert suffix_of("x.TIF") == ".tif"
    assert [suffix_of(name) for name in ("x", "x.t/f", "x.a b", "x.verylongone", ".png")] == [""] * 5


def test_the_folder_is_private(served):
    assert stat.S_IMODE(os.stat(served.folder).st_mode) == 0o700
    for part in ("files", "masks", "jobs"):
        assert stat.S_IMODE(os.stat(served.folder / part).st_mode) == 0o700


def damaged():
    """Some hundred files that are not what they say: made to do harm, cut short, with bytes turned."""
    chosen = [(name, data) for name, data in handmade() if len(data) < 300_000]
    return chosen[:: max(1, len(chosen) // 90)]


def test_damaged_files_are_each_refused_in_words(served, client, tmp_path):
    files = damaged()
    for name in ("uint8-RGBA-all.png", "RGB-all.jpg", "uint16-RGB.tif", "RGB-all-lossless.webp", "cube.fits"):
        corpus.CASES[name](tmp_path / name)
        data = (tmp_path / name).read_bytes()
        files += [(f"half-{name}", data[: len(data) // 2]), (f"start-{name}", data[:40]), (f"text-{name}", b"hello")]
        files += [(f"other-{Path(name).stem}.{'png' if not name.endswith('png') else 'tif'}", data)]
    assert len(files) > 90
    process = None
    for name, data in files:
        answer = client.post("/api/files", params={"name": name}, content=data)
        assert answer.status_code in (201, 413, 422), (name, answer.text)
        process = process or served.server.readers.hands[0].process
        if answer.status_code != 201:
            told = answer.json()
            assert answer.headers["content-type"] == "application/problem+json"
            assert told["title"]
            assert told["remedy"], name
            assert "Traceback" not in answer.text
            assert "bug" not in told["title"].lower(), (name, told)
            assert str(served.folder) not in answer.text
            assert not re.search("[0-9a-f]{32}", answer.text), told
    assert served.server.readers.hands[0].process is process  # none of them killed it
    refused = client.post("/api/files", params={"name": "half-cube.png"}, content=b"\x89PNG\r\n\x1a\n")
    assert "half-cube.png" in refused.json()["detail"]
    assert client.upload(encoded(scene()))


def test_a_file_that_keeps_its_reader_busy_keeps_nobody_else_waiting(served, client, monkeypatch):
    client.upload(encoded(scene()))
    process = served.server.readers.hands[0].process
    os.kill(process.pid, signal.SIGSTOP)  # as if it had met a file that takes for ever
    served.server.readers.hands[1].ask("values", [], 0, 0, 0)  # so that it has begun
    monkeypatch.setattr(readers, "SECONDS", 1.5)
    with ThreadPoolExecutor(1) as pool, served.client() as other:
        waiting = pool.submit(client.post, "/api/files", params={"name": "a.png"}, content=encoded(scene()))
        while not served.server.readers._busy:
            time.sleep(0.01)
        other.upload(encoded(scene()))
        assert not waiting.done()
        answer = waiting.result()
    assert answer.status_code == 422
    assert "took too long" in answer.json()["title"]
    assert "--seconds" not in answer.json()["remedy"]
    assert not process.is_alive()
    monkeypatch.undo()  # a process that begins takes a moment
    client.upload(encoded(scene()))


def test_one_address_never_has_all_readers():
    """Whoever asks for how much: all answers come, and another address has its own at once."""
    gate, asked = threading.Event(), []

    class Slow:
        def ask(self, skill, *arguments, seconds, tell):
            asked.append(skill)
            assert skill == "theirs" or gate.wait(10)
            return skill

    async def main():
        crew = readers.Readers(3)
        crew.hands = crew._idle = [Slow() for _ in range(3)]
        flood = [asyncio.create_task(crew.ask("a", "look", size=0)) for _ in range(6)]
        await asyncio.sleep(0.1)
        assert asked == ["look"] * 2
        assert await crew.ask("b", "theirs", size=0) == "theirs"
        assert asked == ["look", "look", "theirs"]
        gate.set()
        assert await asyncio.gather(*flood) == ["look"] * 6
        assert len(crew._idle) == 3
        assert not crew._busy

    asyncio.run(main())


def test_masks_that_do_not_fit(client):
    file = client.upload(encoded(scene(64)))
    for data in (encoded(scene(32)), b"", b"hello", encoded(scene(64) * 0 + 255)):
        answer = client.post("/api/masks", params={"file": file}, content=data)
        assert answer.status_code == 422
        assert "mask.png" in answer.json()["detail"]


# --- the API as it describes itself --------------------------------------------------------------------------------


def test_no_request_breaks_it(served):
    """Requests made up from the OpenAPI description, and against it: answers are described, none is a 5xx."""
    schema = schemathesis.openapi.from_url(f"{served.address}/api/openapi.json").exclude(path_regex="/events$")
    for operation in schema.get_all_operations():
        probe(operation.ok().as_strategy(), served.address)


def probe(cases, address):
    """Some requests of one kind."""

    @settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(case=cases)
    def ask(case):
        answer = case.call(base_url=address)
        assert answer.status_code < 500, (case.method, case.formatted_path, answer.text)

    ask()


def linked(description):
    """The description with what leads from one answer to the next request: ids of files, kernels, masks and jobs."""
    paths = description["paths"]

    def links(path, field, requests):
        """From what is made at a path to each operation that names it."""
        found = {}
        value = f"$response.body#/{field}"
        prefix = {"file": "/api/files/", "psf": "/api/psf/", "mask": "/api/masks/", "job": "/api/jobs/"}[field]
        for other, operations in paths.items():
            if other.startswith(f"{prefix}{{id}}") and not other.endswith("/events"):
                for method, operation in operations.items():
                    found[f"{method} {other}"] = {"operationId": operation["operationId"], "parameters": {"id": value}}
        for name, (where, body) in requests.items():
            operation = paths[where]["post"]["operationId"]
            found[name] = (
                {"operationId": operation, "requestBody": {**body, "file": value}}
                if body
                else {"operationId": operation, "parameters": {"file": value}}
            )
        status = next(iter(paths[path]["post"]["responses"].keys() & {"201", "202"}))
        paths[path]["post"]["responses"][status]["links"] = found

    asked = {"task": "denoise", "sigma": 0, "error_map": False}
    crop = {"task": "denoise", "sigma": 9, "row": 20, "col": 20}
    requests = {"job": ("/api/jobs", asked), "mask": ("/api/masks", None), "crop": ("/api/previews", crop)}
    links("/api/files", "file", {name: own for name, own in requests.items() if own[0] in paths})
    links("/api/psf", "psf", {})
    links("/api/masks", "mask", {})
    links("/api/jobs", "job", {})
    return description


def test_no_sequence_of_requests_breaks_it(served, client):
    """Schemathesis goes from answer to answer with the ids that it is given, as one client."""
    description = linked(client.get("/api/openapi.json").json())
    schema = schemathesis.openapi.from_dict(description).exclude(path_regex="/events$|/info$|/examples|/archive")
    schema.config.update(base_url=served.address)
    wrong, answers = [], Counter()
    made = {"/api/files": encoded(scene(40)), "/api/masks": encoded(scene(40) // 200)}

    class Sequence(schema.as_state_machine()):
        def before_call(self, case):
            if case.path in made:
                case.body = made[case.path]
            if case.path == "/api/files":
                case.query = {"name": "a.png"}

        def get_call_kwargs(self, case):
            return {"cookies": {"slir-session": client.cookies["slir-session"]}}

        def validate_response(self, response, case, **named):
            answers[case.method, case.path, response.status_code] += 1
            if response.status_code >= 500:
                wrong.append((case.method, case.formatted_path, response.text))

    options = {"max_examples": 12, "stateful_step_count": 20, "derandomize": True, "database": None, "deadline": None}
    with contextlib.suppress(FlakyStrategyDefinition):  # answers depend on the time that jobs take
        Sequence.run(settings=settings(suppress_health_check=list(HealthCheck), phases=[Phase.generate], **options))
    assert wrong == []
    done = {(method, path) for method, path, status in answers if status < 300 and "{id}" in path}
    assert len(done) >= 5, answers


def test_many_clients_while_processes_are_killed(tmp_path):
    attack = siege(tmp_path, clients=6, seconds=5, pause=1)
    assert attack.wrong == []
    assert attack.said["upload", 201] > 0


def test_the_description_is_whole(client):
    described = client.get("/api/openapi.json").json()
    assert {"/api/info", "/api/files", "/api/psf", "/api/masks", "/api/jobs", "/api/jobs/{id}/explain"} <= set(
        described["paths"]
    )
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404  # they load from other hosts


# --- its end -------------------------------------------------------------------------------------------------------


def test_nothing_is_left_behind(tmp_path):
    with serving(folder=tmp_path) as served, served.client() as client:
        client.upload(encoded(scene()))
        client.submit(client.upload(encoded(scene(600))), sigma=12)
        (folder,) = tmp_path.iterdir()
        assert folder == served.folder
        process = served.server.bench._hands[0].process
    assert list(tmp_path.iterdir()) == []
    assert not process.is_alive()


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [sys.executable, "-c", "from slir.cli import main; main()", "serve", "--port", str(port)]
    server = subprocess.Popen([*program, "--folder", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline() == f"slir serves http://127.0.0.1:{port}/  (Ctrl-C ends it)\n"
        answer = _patient(port)
        assert answer.status_code == 201
        family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        places = [place for each in family for place in each.net_connections() if place.status == psutil.CONN_LISTEN]
        assert {place.laddr for place in places} == {("127.0.0.1", port)}
        (folder,) = tmp_path.iterdir()
        clear_stale(tmp_path)
        assert folder.exists()  # it lives
        server.send_signal(signal.SIGKILL)
        server.wait()
        assert list(folder.rglob("*.png"))
        with private_folder(Settings(folder=tmp_path)) as other:
            assert list(tmp_path.iterdir()) == [other]
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    assert list(tmp_path.iterdir()) == []


def _patient(port):
    for _ in range(200):
        try:
            return httpx.post(f"http://127.0.0.1:{port}/api/examples/noisy", timeout=30)
        except httpx.ConnectError:
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


# --- what a reader may do ------------------------------------------------------------------------------------------


class Harm:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def serve_what_writes(connection, memory):
    """A reader that a file has taken over, which tries all that would change the disk."""

    def harm(tell, folder):
        folder, done = Path(folder), []
        deeds = {
            "write": lambda: (folder / "old").write_text("new"),
            "empty": lambda: os.truncate(folder / "old", 0),
            "make": lambda: (folder / "new").touch(),
            "remove": lambda: (folder / "old").unlink(),
            "move": lambda: (folder / "old").rename(folder / "other"),
            "folder": lambda: (folder / "new").mkdir(),
            "link": lambda: (folder / "new").symlink_to("/etc"),
        }
        for name, deed in deeds.items():
            with contextlib.suppress(OSError):
                deed()
                done.append(name)
        return [done, (folder / "old").read_text()]

    crew.serve(connection, memory, {"harm": harm}, writes=False)


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is of Linux")
def test_readers_change_nothing_on_the_disk(tmp_path):
    (tmp_path / "old").write_text("kept")
    hand = crew.Hand(serve_what_writes)
    try:
        assert hand.ask("harm", str(tmp_path)) == [[], "kept"]
    finally:
        hand.end()
        hand.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def answers_with_harm(connection, memory):
    """A reader that a file has taken over."""
    _, (path,) = connection.recv()
    connection.send(Harm(path))
    connection.recv()


def answers_without_end(connection, memory):
    connection.recv()
    while True:
        connection.send_bytes(b" " * (crew.LONGEST + 1))


@pytest.mark.parametrize("serve", [answers_with_harm, answers_without_end])
def test_answers_of_readers_are_never_unpickled(tmp_path, serve):
    hand = crew.Hand(serve)
    try:
        with pytest.raises(crew.Refused) as caught:
            hand.ask("look", tmp_path / "harm", seconds=60)
        assert caught.value.problem["title"] == "The worker process died"
        assert not (tmp_path / "harm").exists()
    finally:
        hand.end()
        hand.kill()


def test_readers_write_nothing_and_leave_rare_codecs_out(tmp_path):
    pixels = np.full((16, 16), 7, np.uint8)
    tifffile.imwrite(tmp_path / "rare.tif", pixels, compression="lerc")
    tifffile.imwrite(tmp_path / "usual.tif", pixels, compression="zlib")
    hand, told = crew.Hand(work.serve_reader), []
    try:
        found = hand.ask("look", tmp_path / "usual.tif", 10**6, tell=told.append)
        assert (found["width"], found["height"]) == pixels.shape
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(b"".join(told)))), pixels)
        limits = Path(f"/proc/{hand.process.pid}/limits").read_text()
        assert re.search(r"Max file size +0 +0 +bytes", limits)
        with pytest.raises(crew.Refused) as caught:
            hand.ask("look", tmp_path / "rare.tif", 10**6)
        assert "compressed by LERC, which is left out where files are not trusted" in caught.value.problem["detail"]
    finally:
        hand.end()
        hand.kill()


def test_rare_codecs_are_left_out_where_the_environment_says_so(tmp_path, monkeypatch):
    pixels = np.arange(1024, dtype=np.uint8).reshape(32, 32)
    for name in ("lerc", "jpeg2000", "jpegxl"):
        tifffile.imwrite(tmp_path / f"{name}.tif", pixels, compression=name, compressionargs={})
    fits.CompImageHDU(pixels.astype("i2"), compression_type="PLIO_1").writeto(tmp_path / "plio.fits")
    for path in sorted(tmp_path.iterdir()):
        for switch, left_out in (("", False), ("0", False), ("1", True)):
            monkeypatch.setenv("SLIR_UNTRUSTED", switch)
            if left_out:
                with pytest.raises(FileError, match="left out where files are not trusted"):
                    slir_io.read(path)
            else:
                slir_io.read(path)


def test_a_disk_that_is_full_while_a_picture_is_told_spoils_no_later_answer(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.random.default_rng(0).integers(0, 255, (1500, 1500)).astype(np.uint8))

    def full(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    hand, told = crew.Hand(work.serve_reader), []
    try:
        with pytest.raises(OSError, match="No space left"):
            hand.ask("look", tmp_path / "a.tif", 10**7, tell=full)
        assert hand.ask("look", tmp_path / "a.tif", 10**7, tell=told.append)["width"] == 1500
        assert len(told) > 1
        assert Image.open(io.BytesIO(b"".join(told))).size == (1500, 1500)
    finally:
        hand.end()
        hand.kill()
