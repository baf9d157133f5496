"""`slir bench trust`: whether error maps rank and intervals hold the truth as often as they say, on the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from slir.compute import pick_device
from slir.estimator.tiling import restore_tiled
from slir.model import Model
from slir.trust.calibrate import calibrate
from slir.trust.spread import box
from slir_bench.learnt import Learnt
from slir_bench.ours import operator_of
from slir_bench.protocols import Case, Group, groups
from slir_bench.results import write_whole

TABLES = ("deblurring", "denoising", "upsampling", "inpainting")
LEVELS = (0.5, 0.8, 0.9, 0.95)
TENTHS = 10
IMAGES = 200
"""Training images that are calibrated on, a crop of each. Errors differ by a fifth from picture to picture, so that a
hundred of them leave the table uncertain by a point."""

PATCH = 4
"""Radius of the squares whose errors are ranked."""


CALIBRATED = "slir, calibrated for this operator"


class Calibrated(Learnt):
    """What slir ships, calibrated on training images for the operator and the noise of a group."""

    def prepare(self, group: Group) -> None:
        case = group.cases[0]
        images = group.train_images(IMAGES)
        self.model = calibrate(images, operator=operator_of(case), sigma=case.sigma, device=self.device)
        self.model = self.model.to(self.device)


@dataclass(frozen=True)
class Row:
    """coverage: share of pixels inside, by level. worst: (least, most) coverage of any tenth by expected error.

    rank: Spearman's correlation of expected and true root mean square error of squares of 9 pixels a side, the mean
    over pictures. gain: by what share the root mean square error falls without the tenth of the pixels that are
    expected to be worst. expected, found: root mean square errors, in grey levels of 255.
    """

    method: str
    table: str
    setting: str
    images: int
    coverage: tuple[float, ...]
    worst: tuple[tuple[float, float], ...]
    rank: float
    gain: float
    expected: float
    found: float
    reason: str = ""

    def line(self) -> str:
        parts = (f"{100 * c:5.1f} [{100 * a:.0f}, {100 * b:.0f}]" for c, (a, b) in zip(self.coverage, self.worst))
        sizes = f"expected {self.expected:5.2f}, found {self.found:5.2f}"
        tail = f"rank {self.rank:.2f}, without the worst tenth -{100 * self.gain:.0f} %, {sizes} {self.reason}"
        return f"{self.method:<34} {self.table:<11} {self.setting:<8} {'  '.join(parts)}  {tail}"


def measured(method: str, table: str, setting: str, cases: Sequence[Case], model: Model, device: str) -> Row:
    """All cases of a group with one model."""
    assert model.trust is not None  # `main` saw to it
    errors, expected, ranks = [], [], []
    widths: list[list[np.ndarray]] = [[] for _ in LEVELS]
    reason = ""
    trust = model.trust
    for case in cases:
        operator = operator_of(case)
        y = torch.from_numpy(np.asarray(case.y, np.float32)).to(device)
        found = restore_tiled(y, operator, model, sigma=case.sigma, errors=True)
        assert found.error is not None
        reason = reason or trust.reason(operator, case.sigma)
        target = torch.from_numpy(np.asarray(case.target, np.float32)).to(device)
        cut = (found.x.shape[0] - target.shape[0]) // 2
        inner = (slice(cut, cut + target.shape[0]), slice(cut, cut + target.shape[1]))
        off, guess = (found.x[inner] - target).abs(), found.error[inner]
        ranks.append(_rank(box(guess.square(), PATCH), box(off.square(), PATCH)))
        counted = guess > 0  # what is known beforehand is not counted
        errors.append(off[counted].cpu().numpy())
        expected.append(guess[counted].cpu().numpy())
        for level, own in zip(LEVELS, widths):
            own.append(trust.half_width(guess[counted], level, case.sigma).cpu().numpy())
    off_all, guess_all = np.concatenate(errors), np.concatenate(expected)
    order = np.argsort(guess_all)
    inside = [off_all <= np.concatenate(own) for own in widths]
    tenths = np.array_split(order, TENTHS)
    shares = [[float(own[tenth].mean()) for tenth in tenths] for own in inside]
    kept = order[: len(order) - len(order) // TENTHS]
    return Row(
        method,
        table,
        setting,
        len(cases),
        tuple(float(own.mean()) for own in inside),
        tuple((min(own), max(own)) for own in shares),
        float(np.mean(ranks)),
        1 - float(np.sqrt(np.square(off_all[kept]).mean() / np.square(off_all).mean())),
        255 * float(np.sqrt(np.square(guess_all, dtype=np.float64).mean())),
        255 * float(np.sqrt(np.square(off_all, dtype=np.float64).mean())),
        reason,
    )


def _rank(guess: torch.Tensor, true: torch.Tensor) -> float:
    """Of squares that do not overlap."""
    step = 2 * PATCH + 1
    own = (image[PATCH::step, PATCH::step].flatten().cpu().numpy() for image in (guess, true))
    return float(spearmanr(*own).statistic)


def main(
    *,
    data: Path,
    out: Path,
    subset: str = "all",
    device: str | None = None,
    calibrated: bool = False,
    tables: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure every group of the tables, and write the rows to trust.txt as they are done.

    calibrated: also the model that ships, calibrated for the group's own operator and noise on the benchmark's training
    images. say: called with each row.
    """
    chosen = str(pick_device(device))
    methods = [Learnt(device=chosen)]
    if calibrated:
        methods.append(Calibrated(CALIBRATED, chosen))
    rows: list[Row] = []
    for table in tables or TABLES:
        for group in groups(table, data, subset=subset):
            for method in methods:
                method.prepare(group)
                assert method.model is not None
                if method.model.trust is None:
                    say(f"{method.name}: {table} {group.setting}: not calibrated")
                    continue
                rows.append(measured(method.name, table, group.setting, group.cases, method.model, chosen))
                say(rows[-1].line())
                out.mkdir(parents=True, exist_ok=True)
                write_whole(out / "trust.txt", "".join(f"{row.line()}\n" for row in rows).encode())
    return rows
