"""Image files that Pillow opens, one format at a time."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

from PIL import Image


@contextlib.contextmanager
def opened(data: bytes, form: str) -> Iterator[Image.Image]:
    """The image in a file of the format that Pillow calls `form`; no other is tried."""
    with warnings.catch_warnings():
        # Pillow warns of metadata it cannot parse and of sizes under its own limit; neither spoils the pixels.
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(data), formats=[form]) as image:
            yield image
