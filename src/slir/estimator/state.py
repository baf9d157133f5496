"""The state of a restoration between two stages of the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from slir.operators import Operator


@dataclass(frozen=True)
class State:
    """Images of a plane (H, W), of channels that are restored together (C, H, W), or several (N, C, H, W); the range
    is 1.

    y, operator: the data and B. x: the data step, which explains y best among the images near z. z: the average of the
    patches. sigma: standard deviation of the noise of y; of images that B treats by themselves one each, (C, 1, 1), or
    one a pixel.
    seen: the data step that the last stage with a network saw. error: the root mean square error to expect of z, where
    a stage was asked for it.
    """

    y: Tensor
    operator: Operator
    x: Tensor
    z: Tensor
    sigma: Any = 0.0
    seen: Tensor | None = None
    error: Tensor | None = None

    def pixel_noise(self) -> Tensor:
        """Standard deviation of what y says of each pixel of x: σ/√(BᵀB) where BᵀB is diagonal, infinite where a pixel
        is not observed. For other operators infinite everywhere."""
        diagonal = self.operator.diagonal_like(self.x)
        if diagonal is None:
            return self.x.new_full((1, 1), torch.inf)
        sigma = torch.as_tensor(self.sigma, dtype=self.x.dtype, device=self.x.device)
        return torch.where(diagonal > 0, sigma / diagonal.sqrt(), torch.inf)
