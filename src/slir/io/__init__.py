"""Files to arrays and back, with nothing lost on the way."""

from slir.io.atomic import whole_file
from slir.io.images import EXTENSIONS, check_output, is_image_name, read, write
from slir.io.kernels import read_psf
from slir.io.masks import read_mask
from slir.io.picture import Meta, Picture, Resolution

__all__ = [
    "read",
    "write",
    "check_output",
    "is_image_name",
    "read_psf",
    "read_mask",
    "whole_file",
    "Picture",
    "Meta",
    "Resolution",
    "EXTENSIONS",
]
