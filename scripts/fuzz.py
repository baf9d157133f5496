"""Damages files and reads them, for as long as is asked; what breaks a reader is kept in tests/crashes/.

    python scripts/fuzz.py [--minutes 30] [--runs 0] [--guided] [TARGET...]

Each target of tests/fuzzing.py has a process of its own, in which no more than 1 GB can be allocated beyond what the
good files take. Findings are exceptions other than slir's own, reads of more than five seconds of CPU time, crashes of
the process, and pixels that a second reader sees otherwise although neither refuses the file. With --guided Atheris
chooses what to damage further by the lines that it reaches.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
ROOM = 1 << 30
SECONDS = 5


class Late(BaseException):
    """Nothing that a reader catches."""


def quiet() -> None:
    """Second readers tell of damage in many lines."""
    warnings.simplefilter("ignore")
    logging.disable()


def late(*_: object) -> None:
    raise Late


def plain(name: str, minutes: float, runs: int, seed: int) -> int:
    """One target, by chance. Gives the number of findings."""
    import fuzzing

    quiet()
    signal.signal(signal.SIGPROF, late)
    places: set[str] = set()
    done = refused = 0
    longest, end = 0.0, time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder, "room")
        room.mkdir()
        for data in fuzzing.seeds(name, Path(folder)):
            fuzzing.run(name, data, room)
        limited(ROOM)
        rng = random.Random(seed)
        while time.monotonic() < end and not (runs and done >= runs):
            data = fuzzing.damaged(name, rng, Path(folder))
            note(name, data)  # if the process dies, this is what did it
            start = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                said = fuzzing.run(name, data, room)
                refused += said is not None
                place = "pixels that another reader sees otherwise" if said == fuzzing.OTHERWISE else ""
                if said is not None and "fit into memory" in said:
                    place = said.partition(": ")[2]
            except Late:
                place = "more than five seconds"
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                place = where(error)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            done += 1
            longest = max(longest, time.process_time() - start)
            if place and place not in places:
                places.add(place)
                print(f"{name}: {kept(name, data)}: {place}", flush=True)
    note(name, None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name}: {done} files, {refused} refused, {fuzzing.compared.total()} compared, {len(places)} findings, "
          f"longest {longest:.2f} s, peak {peak} MB", flush=True)  # fmt: skip
    return len(places)


def limited(more: int) -> None:
    """No more address space than so many bytes beyond what is taken."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def where(error: BaseException) -> str:
    """The exception, and the last line of slir that it passed."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}slir{os.sep}" in frame.filename]
    place = f"{Path(lines[-1].filename).name}:{lines[-1].lineno}" if lines else "outside of slir"
    return f"{type(error).__name__} at {place}"


def kept(name: str, data: bytes) -> Path:
    import fuzzing

    path = fuzzing.CRASHES / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}"
    path.write_bytes(data)
    return path


def note(name: str, data: bytes | None) -> None:
    path = Path(tempfile.gettempdir(), f"slir-fuzz-{os.getpid()}-{name}")
    if data is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(data)


def guided(name: str, minutes: float) -> int:
    """One target, by Atheris. libFuzzer ends the process, and says in its exit code whether anything was found."""
    import atheris

    with atheris.instrument_imports(include=["slir"]):
        import fuzzing
    quiet()
    folder = Path(tempfile.mkdtemp())
    seeds, room = folder / "corpus", folder / "room"
    for made in (seeds, room):
        made.mkdir()
    for number, data in enumerate(fuzzing.seeds(name, folder)):
        (seeds / str(number)).write_bytes(data)

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        return fuzzing.TARGETS[name].mutate(data, random.Random(seed))[:most]

    def one(data: bytes) -> None:
        if fuzzing.run(name, data, room) == fuzzing.OTHERWISE:
            raise AssertionError(fuzzing.OTHERWISE)

    options = {"max_total_time": round(60 * minutes), "timeout": SECONDS, "max_len": 1 << 17, "rss_limit_mb": 3000,
               "artifact_prefix": fuzzing.CRASHES / f"{name}-", "print_final_stats": 1, "verbosity": 0}  # fmt: skip
    atheris.Setup(
        [sys.argv[0], *(f"-{key}={value}" for key, value in options.items()), str(seeds)], one, custom_mutator=mutator
    )
    atheris.Fuzz()
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=30, help="for all targets together")
    parser.add_argument("--runs", type=int, default=0, help="files a target; 0 for as many as there is time for")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--guided", action="store_true")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    own = parser.parse_args()
    seed = time.time_ns() if own.seed is None else own.seed
    if own.alone:
        (name,) = own.targets
        raise SystemExit(guided(name, own.minutes) if own.guided else plain(name, own.minutes, own.runs, seed) > 0)
    import fuzzing

    names = own.targets or list(fuzzing.TARGETS)
    failed = False
    for name in names:
        words = ["--minutes", str(own.minutes / len(names)), "--runs", str(own.runs), "--seed", str(seed)]
        command = [sys.executable, __file__, name, "--alone", *words, *(["--guided"] if own.guided else [])]
        process = subprocess.run(command, check=False)
        failed = failed or process.returncode != 0
        if process.returncode < 0:
            print(f"{name}: killed by {signal.Signals(-process.returncode).name}")
            for left in Path(tempfile.gettempdir()).glob(f"slir-fuzz-*-{name}"):
                print(f"{name}: {kept(name, left.read_bytes())}")
                left.unlink()
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
