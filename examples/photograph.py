"""Photographs: shaken, out of focus, and noisy at night.

A camera held by hand moved while the shutter was open; another was focused a little before the cup; a third had to
make do with little light. The first two blurs are known here, which in life takes a measurement or a guess that one
refines by eye: the guide on deblurring says how. The noise of the third is not told to slir, `sigma="auto"` reads it
from the picture.
"""

from __future__ import annotations

import numpy as np
from story import Story, blurred, crop, psnr, recorded

import slir


def main(argv: list[str] | None = None) -> Story:
    story = Story.begin(__file__, __doc__, argv)
    rng = np.random.default_rng(0)

    # The camera shook along a crooked path of 15 pixels.
    psf = slir.psf.camera_shake(15, rng=4, softness=0.5)
    seen, sharp = blurred(story.picture("cat", (110, 150)), psf)
    shaken = recorded(seen, 2, rng)
    restored = slir.deblur(shaken, psf, sigma=2, channel_axis=-1)
    story.gain("shaken", psnr(shaken, sharp), psnr(restored, sharp))
    story.figure("shaken", {"shaken": shaken, "restored": restored, "truth": sharp})
    at = (90, 120)
    near = {"shaken": shaken, "restored": restored, "truth": sharp}
    story.figure("shaken-near", {label: crop(image, at, 150) for label, image in near.items()}, zoom=2)

    # The focus was wrong: a point of light becomes a disk of 6 pixels across.
    psf = slir.psf.defocus(3)
    seen, sharp = blurred(story.picture("coffee", (150, 150)), psf)
    unsharp = recorded(seen, 2, rng)
    restored = slir.deblur(unsharp, psf, sigma=2, channel_axis=-1)
    story.gain("out of focus", psnr(unsharp, sharp), psnr(restored, sharp))
    story.figure("focus", {"out of focus": unsharp, "restored": restored, "truth": sharp})

    # At night. Nobody knows how strong the noise is, so it is estimated.
    clean = story.picture("rocket", (90, 150))
    noisy = recorded(clean, 20, rng)
    result = slir.denoise(noisy, sigma="auto", channel_axis=-1, return_info=True)
    found = ", ".join(f"{sigma:.1f}" for sigma in result.stats["sigma"])
    story.tell(f"night: sigma of red, green and blue estimated at {found}; the truth is 20")
    story.gain("night", psnr(noisy, clean), psnr(result.image, clean))
    story.figure("night", {"noisy": noisy, "restored": result.image, "truth": clean})
    return story.end()


if __name__ == "__main__":
    main()
