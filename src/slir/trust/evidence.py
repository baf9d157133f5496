"""What an image shows against its forward model before anything is restored, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slir.operators import Blur, Identity, Operator
from slir.trust.noise_error import NoiseError, noise_error
from slir.trust.psf_error import PsfError, partial_blur, psf_error

BLOCK = 512
"""Side of the part of a large image that is looked at, the one that varies most. Samples of images are made of blocks
of this side, whose seams no part may hold."""


@dataclass(frozen=True)
class Evidence:
    """psf: the error of the PSF where there is a significant one. noises: what contradicts white noise in each channel.
    The range is 1.
    """

    psf: PsfError | None = None
    noises: tuple[NoiseError | None, ...] = ()

    @classmethod
    def of(
        cls, planes: Sequence[Tensor], operator: Operator, sigmas: Sequence[float], measured: Sequence[float]
    ) -> Evidence:
        """planes: channels of one image, or of a sample of it, with values in [0, 1]. sigmas: the noise level that was
        specified for each, or estimated. measured: the one that each shows."""
        if isinstance(operator, Identity):
            return cls(noises=tuple(map(noise_error, planes, sigmas, measured)))
        if not isinstance(operator, Blur):
            return cls()
        noise = math.hypot(*sigmas) / len(sigmas)  # of the mean
        found = psf_error(liveliest(torch.stack(list(planes)).mean(0)), operator.psf, noise)
        return cls(found if found is not None and found.significant else None)

    def sigma(self, noise: float, *, estimated: bool) -> float:
        """The noise level to restore with, where the range is 1: the PSF's error counts as noise. A level that was
        specified may have been meant to include it."""
        if self.psf is None or self.psf.shapeless:
            return noise
        return (noise**2 + self.psf.level**2) ** 0.5 if estimated else max(noise, self.psf.level)

    def operator(self, operator: Operator) -> Operator:
        """The operator to restore with."""
        if self.psf is None or not self.psf.shapeless or not isinstance(operator, Blur):
            return operator
        return partial_blur(operator)

    @property
    def reason(self) -> str:
        """Why calibrated errors do not hold; empty where they do."""
        reasons = ["the PSF does not fit the image"] if self.psf is not None else []
        return next(iter(reasons + [noise.reason for noise in self.noises if noise is not None]), "")

    def error(self, error: Tensor, number: int) -> Tensor:
        """The error to expect in a channel, given that of a restoration whose σ includes all noise."""
        noise = self.noises[number] if number < len(self.noises) else None
        return error if noise is None else (error.square() + noise.left**2).sqrt()

    def faults(self, spans: Sequence[float]) -> dict[str, str]:
        """In words, with the remedies, by short names. spans: how many pixel values the range is, of each channel."""
        faults = {} if self.psf is None else {"psf": self.psf.words(max(spans))}
        noises = [(noise, span) for noise, span in zip(self.noises, spans) if noise is not None]
        if noises:
            worst, span = max(noises, key=lambda noise: noise[0].left * noise[1])
            faults["noise"] = worst.words(span)
        return faults


NOTHING_SEEN = Evidence()


def liveliest(plane: Tensor) -> Tensor:
    """The block of a large plane whose pixels vary most: (H, W) -> (h, w)."""
    if max(plane.shape) < 2 * BLOCK:
        return plane
    starts = [range(0, max(1, side - BLOCK + 1), BLOCK) for side in plane.shape]
    blocks = [plane[row : row + BLOCK, col : col + BLOCK] for row in starts[0] for col in starts[1]]
    return max(blocks, key=lambda block: float(block.diff(dim=0).square().mean() + block.diff(dim=1).square().mean()))
