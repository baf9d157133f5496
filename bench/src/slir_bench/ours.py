"""slir's own configurations as methods of the benchmark, beside the peers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from slir.estimator.loop import restore
from slir.estimator.paper_settings import sharper_deblurring
from slir.fitting import paper_model
from slir.model import Model
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir_bench.protocols import Case, Group


def operator_of(case: Case) -> Operator:
    """B as the protocol states it."""
    if case.kind == "deblur":
        assert case.psf is not None
        return Blur(case.psf.astype(np.float64) / case.psf.sum(dtype=np.float64))
    if case.kind == "upsample":
        assert case.psf is not None
        return Downsample(case.factor, case.psf.astype(np.float64), border="circular")
    if case.kind == "inpaint":
        assert case.mask is not None
        return Mask(~case.mask)
    return Identity()


def restored(case: Case, model: Model, device: str) -> np.ndarray:
    """What a model makes of a case, on the pixels that y shows; known pixels without noise stay as they are."""
    operator = operator_of(case)
    y = torch.from_numpy(case.y).float().to(device)
    if y.ndim == 3:
        y = y.permute(2, 0, 1)
    whole = restore(y, operator, model, sigma=case.sigma if y.ndim == 2 else [case.sigma] * len(y)).x
    x = operator.crop(whole, (y.shape[-2], y.shape[-1])).cpu().numpy()
    x = x if x.ndim == 2 else np.moveaxis(x, 0, -1)
    return np.where(case.mask, case.y, x) if case.mask is not None and case.sigma == 0 else x


@dataclass
class Ours:
    """A configuration of `slir.paper_model`, fitted to each group on its training images.

    images: how many training images the bank is cut from (the composition table brings its own four).
    own: settings of `paper_model`. revision: raised when the engine's outcome changes for the same settings.
    """

    name: str
    kinds: frozenset[str]
    images: int = 4
    own: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    revision: int = 1
    model: Model | None = field(default=None, repr=False)

    @property
    def settings(self) -> dict[str, Any]:
        return {"images": self.images, "revision": self.revision, **self.own}

    def handles(self, case: Case) -> bool:
        if case.table == "composition":  # it is about the bank of the paper's own configuration
            return self.name == "slir ℓ2" and case.kind in self.kinds
        return case.kind in self.kinds and case.table != "colour"

    def prepare(self, group: Group) -> None:
        """Fit. A mask belongs to one image, so inpainting is fitted to each case's own pattern instead."""
        case = group.cases[0]
        self.train = group.train_images(self.images)
        self.model = None if case.kind == "inpaint" else self._fit(case)

    def _fit(self, case: Case) -> Model:
        settings = dict(self.own)
        if settings.pop("recipe", None) == "sharper":
            plan = sharper_deblurring(case.sigma)
            settings |= {name: getattr(plan, name) for name in ("gamma", "beta0", "delta", "stages", "view")}
        return paper_model(self.train, operator_of(case), case.sigma, device=self.device, **settings)

    def restore(self, case: Case) -> np.ndarray:
        return restored(case, self.model or self._fit(case), self.device)


def ours(device: str) -> list[Ours]:
    """The configurations that the tables show."""
    every = frozenset({"deblur", "upsample", "denoise", "inpaint"})
    return [
        Ours("slir MSE", every, own={"loss": "squared"}, device=device),
        Ours("slir MSE KRR", every, images=40, own={"loss": "squared", "weights": "krr"}, device=device),
        Ours("slir ℓ2", frozenset({"deblur"}), device=device),
        Ours("slir ℓ2", every - {"deblur"}, images=40, device=device),
        Ours(
            "slir ℓ2 sharper", frozenset({"deblur"}), images=40, own={"recipe": "sharper", "stride": 2}, device=device
        ),
    ]
