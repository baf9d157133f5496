"""Arrays to pictures, for figures: no files, no plotting library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from slir.errors import InputError

# Lightness rises evenly (in OKLab) from dark violet over teal and green to pale sand, so order survives grey printing.
_ANCHORS = np.array(
    [
        (16, 1, 46), (18, 11, 71), (8, 28, 95), (0, 51, 97), (2, 70, 103), (2, 87, 112), (2, 106, 121), (9, 124, 127),
        (1, 144, 131), (6, 164, 129), (57, 183, 117), (121, 194, 113), (167, 205, 117), (206, 215, 133),
        (238, 226, 160), (255, 240, 211),
    ],
    dtype=np.float64,
)  # fmt: skip
_LABEL_HEIGHT = 16


def heatmap(array: np.ndarray, *, low: float | None = None, high: float | None = None) -> np.ndarray:
    """Values as colours, dark for low and pale for high: (H, W) -> (H, W, 3) uint8.

    low, high: the values at the ends of the colours, beyond which they stay; None is the smallest and the largest
        value. Give both where maps are to be compared.
    """
    values = np.asarray(array, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise InputError("array", "have two dimensions and a value", f"of shape {values.shape}", "Pass one map.")
    if not np.isfinite(values).all():
        raise InputError("array", "be finite", "partly NaN or infinite", "Replace these values: np.nan_to_num(array).")
    low = float(values.min()) if low is None else float(low)
    high = float(values.max()) if high is None else float(high)
    if high < low:
        raise InputError("high", f"be at least low, {low:g}", f"{high:g}", "Swap them.")
    place = np.clip((values - low) / (high - low), 0, 1) if high > low else np.zeros_like(values)
    place = place * (len(_ANCHORS) - 1)
    below = np.minimum(place.astype(int), len(_ANCHORS) - 2)
    share = (place - below)[..., None]
    colours = (1 - share) * _ANCHORS[below] + share * _ANCHORS[below + 1]
    return np.rint(colours).astype(np.uint8)


def side_by_side(images: Sequence[np.ndarray], *, gap: int = 4, labels: Sequence[str] | None = None) -> np.ndarray:
    """Pictures in a row on white, each under its label: uint8 (H, W) or (H, W, 3) each -> uint8.

    The result is (H, W) where all are grey and (H, W, 3) otherwise. Shorter ones are aligned at the top.
    """
    if not len(images):
        raise InputError("images", "hold at least one image", "empty", "Pass a list of uint8 arrays.")
    if labels is not None and len(labels) != len(images):
        raise InputError("labels", f"be {len(images)}, one an image", len(labels), "Pass '' where none is wanted.")
    if gap < 0:
        raise InputError("gap", "be zero or positive", gap, "It counts pixels between pictures.")
    for index, image in enumerate(images):
        if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
            remedy = "For values in [0, 1]: np.rint(255 * image.clip(0, 1)).astype(np.uint8)."
            found = f"{image.dtype} of shape {image.shape}"
            raise InputError(f"images[{index}]", "be uint8 of shape (H, W) or (H, W, 3)", found, remedy)
    font = ImageFont.load_default()
    texts = [""] * len(images) if labels is None else list(labels)
    widths = [max(image.shape[1], int(np.ceil(font.getlength(text)))) for image, text in zip(images, texts)]
    top = _LABEL_HEIGHT if labels is not None else 0
    mode = "RGB" if any(image.ndim == 3 for image in images) else "L"
    size = (sum(widths) + gap * (len(images) - 1), top + max(image.shape[0] for image in images))
    sheet = Image.new(mode, size, "white")
    draw, left = ImageDraw.Draw(sheet), 0
    for image, text, width in zip(images, texts, widths):
        draw.text((left, 2), text, fill="black", font=font)
        sheet.paste(Image.fromarray(np.ascontiguousarray(image)), (left, top))
        left += width + gap
    return np.array(sheet)
