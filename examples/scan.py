"""A scanned photograph with scratches and a date stamp.

The print was scratched, dust lay on the glass, and the camera had burnt the date into a corner. Inpainting needs to
know which pixels are lost, and that mask is made as one makes it by hand, by thresholds: scratches and dust are whiter
than anything around them, the stamp in the corner is orange. The mask is widened by a pixel, because the rim of a
scratch is a mixture of scratch and picture. What is not masked stays as it is, to the last bit.

What is filled in is what the surroundings make likely. Lines and edges go on; hair that nobody saw is not invented, so
keep the mask as narrow as the damage.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage
from story import Story, crop, psnr

import slir

ORANGE = (255, 130, 10)


def damaged(clean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The print as it comes out of the scanner."""
    height, width = clean.shape[:2]
    fine = 4  # drawn four times as large and reduced, so that edges are soft
    veil = Image.new("L", (fine * width, fine * height))
    draw = ImageDraw.Draw(veil)
    for _ in range(width // 40):
        start, turn = rng.random(2) * (width, 0.7 * height), rng.uniform(-0.4, 0.4)
        steps = np.arange(int(rng.uniform(0.2, 0.6) * height))
        path = start[:, None] + np.stack([turn * steps + rng.normal(0, 0.3, len(steps)).cumsum(), steps])
        draw.line([tuple(fine * point) for point in path.T], fill=255, width=int(rng.uniform(1, 2) * fine))
    for x, y in rng.random((width * height // 6000, 2)) * (fine * width, fine * height):
        radius = fine * rng.uniform(0.6, 1.6)
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    stamp = Image.new("L", veil.size)
    font = ImageFont.load_default(size=fine * 18)
    ImageDraw.Draw(stamp).text((fine * (width - 110), fine * (height - 30)), "'98  7  24", fill=255, font=font)
    covers = [np.asarray(layer.resize((width, height), Image.Resampling.BOX)) / 255.0 for layer in (veil, stamp)]
    scan = clean.astype(np.float64)
    for cover, colour in zip(covers, ((252, 250, 246), ORANGE)):
        scan += cover[..., None] * (np.array(colour) - scan)
    return np.rint(scan).astype(np.uint8)


def mask_of(scan: np.ndarray) -> np.ndarray:
    """Where the scan shows scratches, dust or the stamp: (H, W, 3) uint8 -> (H, W) bool."""
    values = scan.astype(np.float64)
    grey = values.mean(axis=-1)
    whiter = grey - ndimage.median_filter(grey, 15)
    surely = (whiter > 70) & (grey > 190)
    lost = ndimage.binary_propagation(surely, np.ones((3, 3)), mask=whiter > 25)  # and what hangs together with it
    orange = values[..., 0] - values[..., 2] > 120
    orange[:-40] = False  # above the stamp there is none
    return ndimage.binary_dilation(lost | orange, np.ones((3, 3)))


def main(argv: list[str] | None = None) -> Story:
    story = Story.begin(__file__, __doc__, argv)
    clean = story.picture("cat", (120, 150))
    scan = damaged(clean, np.random.default_rng(1))

    mask = mask_of(scan)
    whole = slir.inpaint(scan, mask, channel_axis=-1)

    story.tell(f"{mask.mean():.1%} of the pixels are masked")
    story.gain("scan", psnr(scan, clean), psnr(whole, clean))
    shown = {"scan": scan, "mask": np.uint8(255) * mask, "restored": whole}
    story.figure("whole", shown)
    near = {"scan": scan, "restored": whole, "truth": clean}
    story.figure("near", {label: crop(image, (120, 150), 150) for label, image in near.items()}, zoom=2)
    return story.end()


if __name__ == "__main__":
    main()
