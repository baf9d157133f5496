"""The BenchOpt benchmark on a tiny picture. BenchOpt is large, so it is no part of the development environment:
`make test-adapters` installs it and runs this."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

benchopt = pytest.importorskip("benchopt")

BENCHMARK = Path(__file__).resolve().parent.parent / "benchmarks" / "benchopt"
GAINS = {"denoise": 0.5, "deblur": 0.4, "upsample": 0.2, "inpaint": 0.9}  # dB over the smooth baseline, at the least


@pytest.mark.filterwarnings("ignore")  # BenchOpt's own
@pytest.mark.usefixtures("one_thread")
def test_slir_beats_the_smooth_baseline_on_every_task(tmp_path: Path) -> None:
    import pandas

    folder = Path(shutil.copytree(BENCHMARK, tmp_path / "restoration"))
    made = benchopt.run_benchmark(
        str(folder),
        dataset_names=["photograph[side=64]"],
        solver_names=["slir", "tikhonov"],
        max_runs=12,
        n_repetitions=1,
        plot_result=False,
        show_progress=False,
    )
    runs = pandas.read_parquet(made)
    runs["solver"] = runs["solver_name"].str.split("[").str[0]
    for task, least in GAINS.items():
        own = runs[runs["p_dataset_task"] == task]
        best = own.groupby("solver")["objective_psnr"].max()  # of the baseline, whichever step was best
        assert best["slir"] > best["tikhonov"] + least
