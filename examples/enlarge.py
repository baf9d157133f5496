"""Small pictures made two and three times as large.

A thumbnail is all that is left of a portrait; a picture from the web is too small to print. Both were once reduced by
ordinary software, bicubically, and slir undoes that: the enlarged picture, reduced again, is the small one. Beside it
stands what interpolation makes of the same pixels.
"""

from __future__ import annotations

import numpy as np
from PIL import Image
from story import Story, crop, psnr

import slir


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """As image software does it, bicubically."""
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))


def main(argv: list[str] | None = None) -> Story:
    story = Story.begin(__file__, __doc__, argv)
    for name, factor, middle in (("astronaut", 2, (90, 90)), ("coffee", 3, (110, 190))):
        truth = story.picture(name, middle)
        height, width = (side - side % factor for side in truth.shape[:2])
        truth = truth[:height, :width]
        small = resized(truth, height // factor, width // factor)

        enlarged = slir.upsample(small, factor, channel_axis=-1)

        interpolated = resized(small, height, width)
        story.gain(f"{name} ×{factor}, beside interpolation", psnr(interpolated, truth), psnr(enlarged, truth))
        shown = {"small": small, "interpolated": interpolated, "slir": enlarged, "truth": truth}
        story.figure(f"by-{factor}", shown)
        del shown["small"]
        story.figure(f"by-{factor}-near", {label: crop(image, middle, 120) for label, image in shown.items()}, zoom=3)
    return story.end()


if __name__ == "__main__":
    main()
