"""Fluorescence microscopy: few photons through a lens that diffracts.

A widefield microscope (NA 1.4, 520 nm, 65 nm a pixel) looks at filaments and vesicles. What blurs them is known from
the lens: an Airy pattern. The camera counts photons, so bright places are noisier than dark ones; it adds noise of its
own and an offset of 100, and writes 16-bit TIFF files that ImageJ understands.

First the noise is removed, with `sigma="poisson-gaussian"`, which reads from the image how noise grows with
brightness. Then the blur, with a third of that noise as sigma: about what is left. Richardson–Lucy deconvolution, the
custom of the field, stands beside it where scikit-image is installed, with the number of iterations that suits it best:
a simulation can tell, since it knows the truth.
"""

from __future__ import annotations

import numpy as np
import tifffile
from scipy import ndimage
from story import Story, as_bytes, blurred, crop, psnr

import slir
from slir import io

OFFSET, GAIN, READ_NOISE = 100.0, 2.2, 3.5  # grey levels of an empty pixel, per photon, and of the camera's noise


def cell(side: int, rng: np.random.Generator) -> np.ndarray:
    """Filaments and vesicles around a dim body, (side, side) photons before the lens."""
    light = np.zeros((side, side))
    for _ in range(side // 9):
        steps = side * 6
        heading = rng.uniform(0, 2 * np.pi) + np.cumsum(rng.normal(0, 0.02, steps))
        path = rng.uniform(0, side, (2, 1)) + np.cumsum([np.sin(heading), np.cos(heading)], axis=1) / 4
        rows, columns = path[:, ((path >= 0) & (path <= side - 2)).all(axis=0)]
        for down in (0, 1):
            for right in (0, 1):  # each point is shared by the four pixels around it
                share = (1 - abs(rows % 1 - down)) * (1 - abs(columns % 1 - right))
                np.add.at(light, (rows.astype(int) + down, columns.astype(int) + right), 9 * share)
    rows, columns = np.mgrid[:side, :side]
    for row, column in rng.uniform(0, side, (side // 6, 2)):
        light += rng.uniform(30, 100) * (np.hypot(rows - row, columns - column) < rng.uniform(1.2, 3))
    body = np.hypot(rows - side / 2, columns - side / 2) < side / 2.4
    return np.clip(light, 0, 150) + ndimage.gaussian_filter(8.0 * body, side / 20) + 2


def recorded(photons: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What the camera writes, uint16."""
    levels = OFFSET + GAIN * rng.poisson(photons) + READ_NOISE * rng.standard_normal(photons.shape)
    return np.clip(np.rint(levels), 0, 65535).astype(np.uint16)


def best_richardson_lucy(image: np.ndarray, psf: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, int] | None:
    """The custom of the field with the number of iterations that suits it best, or None without scikit-image."""
    try:
        from skimage.restoration import richardson_lucy
    except ImportError:
        return None
    light = np.clip(image - OFFSET, 1e-3, None)  # it asks for positive values
    tries = {n: OFFSET + richardson_lucy(light, psf, num_iter=n, clip=False) for n in (3, 5, 7, 10, 15, 20)}
    best = max(tries, key=lambda n: psnr(tries[n], truth))
    return tries[best], best


def main(argv: list[str] | None = None) -> Story:
    story = Story.begin(__file__, __doc__, argv)
    rng = np.random.default_rng(3)
    psf = slir.psf.airy_from_aperture(1.4, wavelength=520, pixel_size=65)
    seen, photons = blurred(cell(130 if story.short else 336, rng), psf)
    truth = OFFSET + GAIN * photons
    calibration = {"unit": "micron", "min": OFFSET, "max": 400.0}
    per_micron = (1 / 0.065, 1 / 0.065)
    path = story.out / "microscope.tif"
    tifffile.imwrite(path, recorded(seen, rng), imagej=True, resolution=per_micron, metadata=calibration)

    picture = io.read(path)
    pixels = picture.pixels.astype(np.float32)  # noise reaches below the offset
    scale = (OFFSET, 500.0)  # what is black, and what is brighter than all
    denoised = slir.denoise(pixels, sigma="poisson-gaussian", data_range=scale, return_info=True)
    left = denoised.stats["sigma"] / 3  # a third of the noise is about what denoising leaves
    sharp = slir.deblur(denoised.image, psf, sigma=left, data_range=scale)
    restored = picture.with_pixels(np.clip(np.rint(sharp), 0, 65535).astype(picture.pixels.dtype))
    io.write(story.out / "microscope-restored.tif", restored)

    story.tell(f"one photon is {denoised.stats['gain'][0]:.2f} grey levels (estimated; the truth is {GAIN})")
    white = float(truth.max()) - OFFSET
    story.gain("microscopy", psnr(pixels, truth, white), psnr(restored.pixels, truth, white))
    shown = {"camera": pixels, "denoised": denoised.image, "deblurred": sharp}
    beside = best_richardson_lucy(pixels, psf, truth)
    if beside is not None:
        score = psnr(beside[0], truth, white)
        story.tell(f"Richardson–Lucy, {beside[1]} iterations, the best of several: {score:.2f} dB")
        shown["Richardson-Lucy"] = beside[0]
    shown["truth"] = truth
    with tifffile.TiffFile(story.out / "microscope-restored.tif") as file:
        kept = file.imagej_metadata or {}
        story.tell(f"the file: {file.pages[0].dtype}, ImageJ's unit {kept.get('unit')}, range {kept.get('min')} up")
    shown = {label: as_bytes(image, OFFSET, OFFSET + 0.8 * white) for label, image in shown.items()}
    story.figure("whole", {label: shown[label] for label in ("camera", "deblurred", "truth")})
    story.figure("near", {label: crop(image, (200, 150), 110) for label, image in shown.items()}, zoom=2)
    return story.end()


if __name__ == "__main__":
    main()
