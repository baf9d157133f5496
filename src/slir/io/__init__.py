"""Files to arrays and back, with nothing lost on the way."""

from slir.io.atomic import whole_file
from slir.io.images import (
    EXTENSIONS,
    can_hold,
    check_output,
    create,
    is_image_name,
    open_source,
    read,
    result_suffix,
    write,
)
from slir.io.kernels import read_psf
from slir.io.masks import open_mask, read_mask
from slir.io.picture import Head, Meta, Picture, Resolution
from slir.io.pixel_size import pixel_size
from slir.io.raw import RawPicture, is_raw_name, read_raw
from slir.io.reduced import ReducedSink
from slir.io.sink import Sink
from slir.io.source import Source

__all__ = [
    "read",
    "write",
    "open_source",
    "create",
    "Source",
    "Sink",
    "ReducedSink",
    "Head",
    "check_output",
    "is_image_name",
    "result_suffix",
    "can_hold",
    "RawPicture",
    "read_raw",
    "is_raw_name",
    "read_psf",
    "read_mask",
    "open_mask",
    "whole_file",
    "Picture",
    "Meta",
    "Resolution",
    "pixel_size",
    "EXTENSIONS",
]
