"""Lays siege to `slir serve`: many clients, of which some are slow, lie or leave, while its processes are killed.

    python scripts/siege.py [--clients 50] [--minutes 2] [--seed 0]

Prints how often which answer was given. Fails where an answer was a 5xx, a result was not that of its picture, a job
did not end, or the server did not work as before afterwards.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=0)
    own = parser.parse_args()
    from sieging import siege

    with tempfile.TemporaryDirectory() as folder:
        attack = siege(Path(folder), clients=own.clients, seconds=60 * own.minutes, seed=own.seed)
    for (what, how), count in sorted(attack.said.items(), key=str):
        print(f"{what} {how}: {count}")
    for wrong in attack.wrong:
        print(f"wrong: {wrong}")
    raise SystemExit(bool(attack.wrong))


if __name__ == "__main__":
    main()
