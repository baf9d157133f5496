"""The state of a restoration between two stages of the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from slir.operators import Operator


@dataclass(frozen=True)
class State:
    """Images of a plane (H, W), or of channels that are restored together (C, H, W); the range is 1.

    y, operator: the data and B. x: the data step, which explains y best among the images near z. z: the average of the
    patches. sigma: standard deviation of the noise; of channels (C, 1, 1), or one a pixel. white: whether the noise is
    independent from pixel to pixel, not what a camera or JPEG leaves.
    seen: the data step that the last stage with a network saw. error: the root mean square error to expect of z, where
    a stage was asked for it.
    """

    y: Tensor
    operator: Operator
    x: Tensor
    z: Tensor
    sigma: Any = 0.0
    white: bool = True
    seen: Tensor | None = None
    error: Tensor | None = None
