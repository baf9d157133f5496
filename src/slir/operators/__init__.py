"""The operator B of the model y = Bx + ε, one file a kind."""

from slir.operators.algebra import Scaled, Sum, Transposed
from slir.operators.base import Operator, adjoint_error
from slir.operators.blur import Blur
from slir.operators.channels import PerChannel
from slir.operators.compose import Compose
from slir.operators.diagonal import Diagonal
from slir.operators.downsample import Downsample, antialias_kernel
from slir.operators.identity import Identity
from slir.operators.linear import Linear
from slir.operators.mask import Mask
from slir.operators.mosaic import ColourFilterArray
from slir.operators.stack import Stack
from slir.operators.varying import VaryingBlur
from slir.operators.volume import VolumeBlur

KINDS: dict[str, type[Operator]] = {"identity": Identity, "blur": Blur, "downsample": Downsample, "mask": Mask}
"""Operators with a task of their own, by the kind that `describe` gives."""

__all__ = [
    "Operator",
    "adjoint_error",
    "Identity",
    "Blur",
    "VaryingBlur",
    "VolumeBlur",
    "Downsample",
    "antialias_kernel",
    "Mask",
    "ColourFilterArray",
    "Diagonal",
    "Stack",
    "PerChannel",
    "Compose",
    "Sum",
    "Scaled",
    "Transposed",
    "Linear",
]
