"""Whether the noise of y is white and of one strength, and how much of it σ leaves out.

White noise falls to 1/k where squares of k × k pixels are averaged. Noise that was smoothed or compressed with the
picture falls more slowly, and is underestimated from single pixels. Texture falls more slowly still.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from slir.estimator.paper_settings import ROUNDING
from slir.noise import estimate_poisson_gaussian, estimate_sigma

COLOURED, TEXTURED = 2.5, 4.5
"""Least ratio of the noise levels from squares of 2×2 pixels and from single pixels if noise is not white, and largest
ratio of those from squares of 4×4 and 2×2 if it is noise and not texture. Both are 1 for white noise."""
FAINT = 1 / 255
"""Least level of coarse noise that is told from texture."""
UNEVEN = 1.6
"""Least ratio of a noise level and σ that counts."""
BRIGHT = 0.9
"""Quantile of the brightness at which noise that grows is compared with σ."""
ADVISED = 1.5
"""σ that removes most of a coloured noise, over its level."""


@dataclass(frozen=True)
class NoiseError:
    """kind: how the noise differs from that of the model. level: noise level over 2×2 pixels, or in bright parts. left:
    root mean square over all pixels of the noise that σ does not include. sigma: σ. The range is 1.
    """

    kind: Literal["coloured", "growing"]
    level: float
    left: float
    sigma: float

    @property
    def reason(self) -> str:
        return "the noise is not white" if self.kind == "coloured" else "the noise grows with brightness"

    def words(self, span: float) -> str:
        """What is wrong and what helps. span: how many pixel values one unit of y is."""
        level, told = f"{self.level * span:.3g}", f"{self.sigma * span:.3g}"
        if self.kind == "growing":
            text = f"The noise grows with brightness: it is about {level} in bright parts, but sigma is {told}."
            return f"{text} sigma='poisson-gaussian' estimates such noise."
        text = (
            f"The noise is not white: over 2×2 pixels it is as strong as white noise of {level}, but sigma is {told}."
        )
        cause = "The picture was smoothed or compressed, and little of its noise is removed."
        return f"{text} {cause} sigma={ADVISED * self.level * span:.2g} removes more, and fine texture with it."


def noise_error(y: Tensor, sigma: float, measured: float) -> NoiseError | None:
    """What contradicts white noise of this σ in y (h, w). measured: noise level of y as `estimate_sigma` has it."""
    expected = max(sigma, measured, ROUNDING)
    middle, coarse = (k * estimate_sigma(F.avg_pool2d(y[None, None], k)[0, 0]) for k in (2, 4))
    if middle > max(COLOURED * max(measured, ROUNDING), FAINT):
        noise = coarse < TEXTURED * middle and middle > UNEVEN * expected
        return NoiseError("coloured", middle, (middle**2 - sigma**2) ** 0.5, sigma) if noise else None
    gain, variance = estimate_poisson_gaussian(y)
    bright = (gain * float(np.quantile(y.numpy(force=True), BRIGHT)) + variance) ** 0.5
    if gain == 0 or bright < UNEVEN * max(expected, FAINT):
        return None
    left = float((gain * y.clamp(min=0) + variance - sigma**2).clamp(min=0).mean()) ** 0.5
    return NoiseError("growing", bright, left, sigma)
