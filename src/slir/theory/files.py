"""A report as files: text, JSON, CSV and plots."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slir.theory.charts import Axis, Colour, Series, line_chart

if TYPE_CHECKING:
    from slir.theory.curves import Curves
    from slir.theory.reports import Report

PLOTS = ("error-by-patches.png", "error-by-images.png")
NAMES = ("theory.txt", "theory.json", "curves.csv", *PLOTS)
"""All that `save` may write."""

_BOUND: Colour = (200, 70, 30)
_ERROR = "held-out error, % of the range"


def save(report: Report, folder: Path) -> list[Path]:
    """Write what there is of `NAMES`, each whole or not at all; return their paths."""
    from slir.io import Picture, whole_file, write

    folder.mkdir(parents=True, exist_ok=True)
    texts = {"theory.txt": report.text() + "\n", "theory.json": json.dumps(plain(report.record()), indent=1) + "\n"}
    if report.curves is not None:
        texts["curves.csv"] = table(report.curves)
    written = []
    for name, words in texts.items():
        with whole_file(folder / name) as path:
            path.write_text(words, encoding="utf-8")
        written.append(folder / name)
    for name, pixels in plots(report).items():
        write(folder / name, Picture(pixels, channel_axis=-1))
        written.append(folder / name)
    return written


def table(curves: Curves) -> str:
    """CSV: a line for each bank."""
    rows = ["images,patches,mean_squared_error,standard_error,paired_error"]
    for i, n in enumerate(curves.n):
        for j, m in enumerate(curves.m):
            numbers = (curves.mean[i, j], curves.standard_error[i, j], curves.paired_error[i, j])
            rows.append(f"{n},{m}," + ",".join(f"{number:.6g}" for number in numbers))
    return "\n".join(rows) + "\n"


def plain(value: Any) -> Any:
    """Fit for JSON: what it has no number for is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def plots(report: Report) -> dict[str, np.ndarray]:
    """Pictures by name, (H, W, 3) uint8."""
    by_patches, by_images = PLOTS
    found = {}
    if report.curves is not None:
        found[by_patches] = _by_patches(report, report.curves)
        if len(report.curves.n) > 1:
            found[by_images] = _by_images(report, report.curves)
    return found


def _by_patches(report: Report, curves: Curves) -> np.ndarray:
    m = np.geomspace(curves.m[0], curves.m[-1], 60)
    series, count = [], len(curves.n)
    for i, n in enumerate(curves.n):
        series += _measured_series(report, _images(n), curves.m, m, n, (i, count), *_root(curves, (i, slice(None))))
    series.append(_theirs(report, m, curves.n[-1], f"the bound's rate,\n{_images(curves.n[-1])}"))
    x = Axis("patches in the bank (m)", ticks=curves.m)
    title = "More patches of the same images"
    return line_chart(series, title=title, subtitle=_subtitle(report), x=x, y=Axis(_ERROR))


def _by_images(report: Report, curves: Curves) -> np.ndarray:
    n = np.geomspace(curves.n[0], curves.n[-1], 60)
    series, count = [], len(curves.m)
    for j, m in enumerate(curves.m):
        series += _measured_series(report, f"{m} patches", curves.n, m, n, (j, count), *_root(curves, (slice(None), j)))
    series.append(_theirs(report, curves.m[-1], n, f"the bound's rate,\n{curves.m[-1]} patches"))
    x = Axis("images that they are from (n)", ticks=curves.n)
    return line_chart(
        series, title="As many patches, from more images", subtitle=_subtitle(report), x=x, y=Axis(_ERROR)
    )


def _root(curves: Curves, part: Any) -> tuple[np.ndarray, np.ndarray]:
    """Root mean square errors in percent, and their bars: d√e = de/(2√e)."""
    root = np.sqrt(curves.mean[part])
    return 100 * root, 100 * curves.paired_error[part] / (2 * root)


def _measured_series(
    report: Report, label: str, at: Any, m: Any, n: Any, place: tuple[int, int], values: np.ndarray, bars: np.ndarray
) -> list[Series]:
    """The law that fits, as a line, below what was measured, as points. place: which of how many curves this is."""
    assert report.rate is not None
    line, colour = m if np.ndim(m) else n, _colour(*place)
    fitted = Series("", line, 100 * np.sqrt(report.rate(m, n)), colour, style="line")
    number, count = place
    return [fitted, Series(label, at, values, colour, bars, shift=5 * (number - (count - 1) / 2))]


def _theirs(report: Report, m: Any, n: Any, label: str) -> Series:
    assert report.bound_rate is not None
    line = m if np.ndim(m) else n
    return Series(label, line, 100 * np.sqrt(report.bound_rate(m, n)), _BOUND, style="dashed")


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"


def _subtitle(report: Report) -> str:
    """What was measured, and how to read it."""
    what = f"{report.task}, sigma {report.sigma:.3g} of a range of 1"
    return f"{what}. Bars: one standard error. Lines: the law that fits."


def _colour(number: int, count: int) -> Colour:
    """Dark for few, bright for many, and never so pale that it is lost on white."""
    from slir.pictures import heatmap

    place = 0.12 + 0.58 * number / max(count - 1, 1)
    red, green, blue = heatmap(np.array([[place]]), low=0, high=1)[0, 0]
    return int(red), int(green), int(blue)
