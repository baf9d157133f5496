"""What the theory says of a bank or a model, what was measured, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from slir.theory.correlation import Correlation
from slir.theory.curves import Curves
from slir.theory.rates import Gain, Rate, gains, preference


@dataclass(frozen=True)
class Report:
    """The theory's constants for a bank or a model, the held-out errors, and the laws that they follow.

    task, operator, sigma: what is undone, σ where the range is 1; None where only a model was looked at, for many.
    m, n: patches and images of the bank that `lam` and `bound` are stated for: the model's, else the largest measured
        one from all images.
    correlation: q with its standard error, and |P|. None for a learnt kernel without images.
    c: c_{B,σ} by the geometry; 1 where nothing better is known. c_printed: as the paper prints it, None for a blur.
    lam: the theorem's λ. bound: the bound for g = 1, which scales it and which nobody knows.
    curves, rate, bound_rate: what was measured on held-out images, the law it follows, and the bound's own shape with
        its size fitted. None where no images were given.
    model: what a model says of itself. model_error: the mean squared error of its own bank's first stage, a pixel, on
        those of the images that it was not learnt from.
    notes: what else to know.
    """

    task: str | None
    operator: dict[str, Any] | None
    sigma: float | None
    size: int
    m: int | None
    n: int | None
    correlation: Correlation | None
    c: float | None
    c_printed: float | None
    lam: float | None
    bound: float | None
    curves: Curves | None
    rate: Rate | None
    bound_rate: Rate | None
    model: dict[str, Any] | None
    model_error: float | None
    notes: tuple[str, ...]
    seed: int

    @property
    def gains(self) -> tuple[Gain, Gain | None] | None:
        """What the last doubling of patches, and that of images, took off the error; None without measurements."""
        return None if self.curves is None else gains(self.curves)

    @property
    def preference(self) -> Gain | None:
        """Above 0 where images are missed more than patches, below 0 where patches are."""
        return None if self.curves is None else preference(self.curves)

    @property
    def advice(self) -> str:
        """More images or more patches, in plain words."""
        from slir.theory.words import advice

        return advice(self)

    def text(self) -> str:
        """All of it for people."""
        from slir.theory.words import text

        return text(self)

    def record(self) -> dict[str, Any]:
        """All of it for machines: numbers, strings, lists and dictionaries alone."""
        found = asdict(self)
        if self.curves is not None:
            table = {
                name: getattr(self.curves, name).tolist()
                for name in ("mean", "standard_error", "paired_error", "errors")
            }
            found["curves"] |= table
        patches, images = self.gains or (None, None)
        found["gains"] = {
            name: None if gain is None else asdict(gain)
            for name, gain in (("patches", patches), ("images", images), ("preference", self.preference))
        }
        return found | {"advice": self.advice}

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write theory.txt, theory.json, curves.csv and the plots into a folder, which is made; return their paths."""
        from slir.theory.files import save

        return save(self, Path(folder))
