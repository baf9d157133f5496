"""What sigma and the PSF do to a picture: both right, and both wrong on purpose.

Nobody knows them exactly. These figures show what a wrong value looks like, so that one can tell from the picture which
way to turn: too small a sigma leaves noise, or makes more of it; too large a one smooths. Too narrow a PSF leaves blur;
too wide a one draws dark and bright lines along the edges.
"""

from __future__ import annotations

import numpy as np
from story import Story, blurred, crop, psnr, recorded

import slir


def main(argv: list[str] | None = None) -> Story:
    story = Story.begin(__file__, __doc__, argv)
    rng = np.random.default_rng(0)
    side = 72 if story.short else 240

    clean = crop(story.picture("cat", (110, 150)), (110, 150), side)
    noisy = recorded(clean, 20, rng)
    shown = {"noisy, sigma 20": noisy}
    for sigma in (10, 20, 40):
        shown[f"denoised with sigma {sigma}"] = slir.denoise(noisy, sigma=sigma, channel_axis=-1)
    told(story, "denoise", shown, clean)

    psf = slir.psf.defocus(2.5)
    seen, sharp = blurred(crop(story.picture("coffee", (150, 150)), (150, 150), side + 5), psf)
    unsharp = recorded(seen, 2.5, rng)
    shown = {"blurred, sigma 2.5": unsharp}
    for sigma in (0.8, 2.5, 8):
        shown[f"deblurred with sigma {sigma}"] = slir.deblur(unsharp, psf, sigma=sigma, channel_axis=-1)
    told(story, "deblur", shown, sharp)

    shown = {"blurred, radius 2.5": unsharp}
    for radius in (1.8, 2.5, 3.2):
        assumed = slir.psf.defocus(radius)
        shown[f"with radius {radius}"] = slir.deblur(unsharp, assumed, sigma=2.5, channel_axis=-1)
    told(story, "psf", shown, sharp)
    return story.end()


def told(story: Story, name: str, shown: dict[str, np.ndarray], truth: np.ndarray) -> None:
    """PSNR of each, and the figure. The first is what was given, the third is restored with what is right."""
    given, *restored = shown
    story.gain(restored[1], psnr(shown[given], truth), psnr(shown[restored[1]], truth))
    for label in (restored[0], restored[2]):
        story.tell(f"{label}: {psnr(shown[label], truth):.2f} dB")
    story.figure(name, shown)


if __name__ == "__main__":
    main()
