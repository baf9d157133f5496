"""Fourier transforms of real images, over the last two axes."""

from __future__ import annotations

import torch
from torch import Tensor


def rfft2(x: Tensor, s: tuple[int, int] | None = None) -> Tensor:
    """As `torch.fft.rfft2`.

    On a CPU one axis after the other. Within a transform of two axes MKL's threads spin until all have done the first:
    beside other work 80×80 pixels took 4 ms instead of 0.03. Between two transforms threads wait as OpenMP is told to
    (`slir._WAITING`). Alone, two transforms take as long as one.
    """
    if x.device.type != "cpu":
        return torch.fft.rfft2(x, s=s)
    height, width = (x.shape[-2], x.shape[-1]) if s is None else s
    return torch.fft.fft(torch.fft.rfft(x, n=width), n=height, dim=-2)


def irfft2(spectrum: Tensor, s: tuple[int, int]) -> Tensor:
    """As `torch.fft.irfft2`; one axis after the other, as above."""
    if spectrum.device.type != "cpu":
        return torch.fft.irfft2(spectrum, s=s)
    return torch.fft.irfft(torch.fft.ifft(spectrum, n=s[0], dim=-2), n=s[1])
