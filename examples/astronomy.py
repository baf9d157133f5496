"""Astronomy: a field of galaxies through turbulent air, with a PSF that is measured on a star.

The image is float, in electrons above the sky, up to thousands of them; bad columns and cosmic rays are NaN. Noise is
that of photons and of the camera. Four steps:

1. NaN is a mask: `slir.inpaint` fills those pixels in and leaves the others as they are;
2. a bright star that stands alone shows the PSF: `slir.psf.from_image`;
3. `sigma="poisson-gaussian"` removes noise that grows with brightness;
4. `slir.deblur` sharpens with the PSF that was measured. A generous sigma keeps the rings around bright stars few; the
   dark one that is left is a point of light that no patch of a photograph prepares for.

Where astropy is installed (`pip install 'slir[fits]'`) the image comes from a FITS file and goes into one, header and
world coordinates included; else it is a TIFF file of floats. PSNR is measured after the stretch (arcsinh) that
astronomers look through, else the brightest pixels alone would count.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import tifffile
from story import Story, as_bytes, blurred, crop, psnr

import slir
from slir import io

SKY, READ_NOISE = 100.0, 6.0  # electrons
STARS = {(172, 143): 60_000.0, (255, 214): 30_000.0, (40, 76): 20_000.0, (78, 44): 40_000.0}  # (row, column): light
SOFTENING = 50.0
HEADER = {"OBJECT": "deep field", "BUNIT": "electron", "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CRVAL1": 53.16}


def moffat(fwhm: float, *, stretch: float, beta: float = 3.0, half: int = 12) -> np.ndarray:
    """Turbulent air, and a mount that drifts to the right a little."""
    row, column = np.mgrid[-half : half + 1, -half : half + 1]
    core = fwhm / 2 / np.sqrt(2 ** (1 / beta) - 1)
    light = (1 + ((row * stretch) ** 2 + (column / stretch) ** 2) / core**2) ** -beta
    return light / light.sum()


def observed(light: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Electrons above the sky, float32, NaN where the detector is bad or a cosmic ray fell."""
    counts = rng.poisson(light + SKY) - SKY + READ_NOISE * rng.standard_normal(light.shape)
    lost = rng.random(light.shape) < 0.003
    lost[:, light.shape[1] // 3] = True
    lost[light.shape[0] // 2 :, light.shape[1] // 4] = True
    return np.where(lost, np.nan, counts).astype(np.float32)


def archived(folder: Path, image: np.ndarray) -> Path:
    """The image as the observatory hands it over."""
    if find_spec("astropy") is None:
        path = folder / "telescope.tif"
        tifffile.imwrite(path, image)
        return path
    from astropy.io import fits

    path = folder / "telescope.fits"
    fits.writeto(path, image, fits.Header(HEADER), overwrite=True)
    return path


def stretched(electrons: np.ndarray) -> np.ndarray:
    """Linear where it is faint, logarithmic where it is bright."""
    return np.arcsinh(np.clip(electrons, -SKY, None) / SOFTENING)


def main(argv: list[str] | None = None) -> Story:
    story = Story.begin(__file__, __doc__, argv)
    rng = np.random.default_rng(7)
    sky = 4000 * (np.clip(story.picture("galaxies", (172, 143)) - 15.0, 0, None) / 240) ** 1.5
    stars = {(56, 56): 60_000.0} if story.short else STARS
    for place, light in stars.items():
        sky[place] += light
    seeing = moffat(3.5, stretch=1.15)
    seen, truth = blurred(sky, seeing)
    path = archived(story.out, observed(seen, rng))

    picture = io.read(path)
    image = picture.pixels
    white = float(np.nanmax(image))
    filled = slir.inpaint(image, np.isnan(image), data_range=white)
    row, column = (at - half for at, half in zip(next(iter(stars)), np.array(seeing.shape) // 2))
    psf = slir.psf.from_image(crop(filled, (row, column), 41))
    denoised = slir.denoise(filled, sigma="poisson-gaussian", data_range=white, return_info=True)
    sharp = slir.deblur(denoised.image, psf, sigma=denoised.stats["sigma"], data_range=white)
    io.write(path.with_stem("telescope-restored"), picture.with_pixels(sharp))

    widths = [" × ".join(f"{width:.2f}" for width in slir.psf.fwhm(kernel)) for kernel in (psf, seeing)]
    story.tell(f"the star is {widths[0]} pixels wide at half maximum; the truth is {widths[1]}")
    story.tell(f"{np.isnan(image).sum()} pixels were NaN; the result has none: {bool(np.isfinite(sharp).all())}")
    top = float(stretched(truth.max()))
    story.gain(
        "galaxies", psnr(stretched(filled), stretched(truth), top), psnr(stretched(sharp), stretched(truth), top)
    )
    black, white = float(stretched(np.array(-20.0))), float(stretched(np.array(4000.0)))
    shown = {"telescope, NaN white": np.nan_to_num(image, nan=4000), "restored": sharp, "truth": truth}
    shown = {label: as_bytes(stretched(each), black, white) for label, each in shown.items()}
    story.figure("whole", shown)
    story.figure("near", {label: crop(each, (150, 210), 130) for label, each in shown.items()}, zoom=2)
    return story.end()


if __name__ == "__main__":
    main()
