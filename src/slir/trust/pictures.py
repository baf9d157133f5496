"""Error maps and explanations as pictures for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from slir.pictures import heatmap

if TYPE_CHECKING:
    from slir.trust.explain import Explanation

BAR, ROOM = 16, 64
"""Width of a colour bar, and of what stands beside it, in pixels."""

COLUMNS = 8


def error_picture(error: np.ndarray, *, high: float | None = None, unit: str = "") -> np.ndarray:
    """An error map with its colour bar: (H, W) or (H, W, C) -> (H, W′, 3), 8 bits. Of channels the root mean square.

    high: the error at the bar's end; None takes what all but a thousandth of the pixels stay below. unit: of the
    pixel values, in words.
    """
    values = np.asarray(error, dtype=np.float64)
    if values.ndim == 3:
        values = np.sqrt(np.square(values).mean(-1))
    most = float(np.quantile(values, 0.999)) if high is None else high
    most = most if most > 0 else 1.0
    sheet = Image.new("RGB", (values.shape[1] + BAR + ROOM, max(values.shape[0], 64)), "white")
    sheet.paste(Image.fromarray(heatmap(values, low=0.0, high=most)), (0, 0))
    ramp = np.linspace(most, 0.0, sheet.height)[:, None].repeat(BAR, 1)
    sheet.paste(Image.fromarray(heatmap(ramp, low=0.0, high=most)), (values.shape[1] + 8, 0))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default()
    left = values.shape[1] + BAR + 12
    for share in (0.0, 0.5, 1.0):
        top = min(sheet.height - 12, max(0, round((1 - share) * sheet.height) - 6))
        draw.text((left, top), f"{share * most:.3g} {unit}".strip(), fill="black", font=font)
    return np.array(sheet)


def explanation_picture(explanation: Explanation, zoom: int, *, width: int | None = None) -> np.ndarray:
    """First the patch as it is restored and the pull, then the examples by weight, all with the patch's contrast.

    Examples are drawn without their means, which is how they enter the sum; what a negative weight takes away is drawn
    as it is. width: what the picture is to stay within, if two columns can; None takes eight.
    """
    font = ImageFont.load_default()
    shapes = explanation.patches - explanation.patches.mean((1, 2), keepdims=True)
    cells = [
        (explanation.restored - explanation.restored.mean(), f"result ({explanation.row}, {explanation.col})", ""),
        (explanation.pull, "the stage's pull", f"mean {explanation.mean:.3f}"),
    ]
    for weight, shape, source, (row, col) in zip(
        explanation.weights, shapes, explanation.sources, explanation.positions
    ):
        cells.append((shape, f"{weight:+.3f}", f"{source} {row},{col}"))
    side = explanation.size * zoom
    wide, tall = max(side, 120) + 16, side + 42
    columns = COLUMNS if width is None else max(2, (width - 16) // wide)
    rows = 1 + -(-(len(cells) - 2) // columns)
    sheet = Image.new("RGB", (wide * min(columns, max(2, len(cells) - 2)) + 16, tall * rows + 16), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (values, title, below) in enumerate(cells):
        at_row, at_col = (0, number) if number < 2 else (1 + (number - 2) // columns, (number - 2) % columns)
        left, top = 16 + at_col * wide, 8 + at_row * tall
        contrast = max(float(np.abs(values).max()), 1e-6)
        grey = np.rint(127.5 + 127.5 * values / contrast).astype(np.uint8)
        sheet.paste(Image.fromarray(grey).resize((side, side), Image.Resampling.NEAREST), (left, top + 14))
        draw.text((left, top), title, fill="black", font=font)
        draw.text((left, top + side + 15), _shorten(below, wide - 8, font), fill=(90, 90, 90), font=font)
    return np.array(sheet)


def _shorten(text: str, width: int, font: ImageFont.ImageFont | ImageFont.FreeTypeFont) -> str:
    """The end of a text that is too long, which is what tells places apart."""
    while font.getlength(text) > width and len(text) > 4:
        text = "…" + text[2:]
    return text
