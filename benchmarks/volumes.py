"""Volumes: slir beside Richardson–Lucy, on a measured-like stack and on simulated fluorescence.

    python benchmarks/volumes.py DIR [--only bars|simulated] [--side 48] [--planes 32] [--seeds 1] [--draw DIR]

DIR holds bars_data.tif, bars_psf.tif and bars_truth.tif (Deconvolution Lab). Simulated: beads, filaments and cells
(`slir_bench.volumes`) through a widefield microscope (NA 1.4, oil, 520 nm; voxels of 200×100×100 nm), Poisson noise
with 5, 20 and 100 photons in the brightest voxel. The volume goes on beyond what is seen.

Peers: Richardson–Lucy of scikit-image with the best number of iterations, chosen with the truth; and the same with the
border modelled, of slir's own operator, likewise. slir is told the PSF, and of the simulated ones that values count
photons; of bars nothing.

PSNR (peak: the range of the truth; of bars after the best affine map of grey values), and the correlation of Fourier
shells between half and all of the highest frequency that the aperture passes within a plane.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tifffile
import torch
from PIL import Image
from skimage.restoration import richardson_lucy

import slir
from slir.compute.transforms import irfftn, rfftn
from slir.estimator.volume import Levels, start_from
from slir.operators import VolumeBlur
from slir.operators.convolution import fast_length
from slir.solvers.nonnegative import Variance, multiply
from slir_bench.volumes import KINDS, VOXEL, simulated

APERTURE, WAVELENGTH, PHOTONS = 1.4, 520.0, (5, 20, 100)
ITERATIONS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300)


def psnr(found: np.ndarray, truth: np.ndarray) -> float:
    return float(-10 * np.log10(np.mean((found - truth) ** 2) / np.ptp(truth) ** 2))


def mapped(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """After the best affine map of grey values."""
    terms = np.stack([found.ravel(), np.ones(found.size)], 1)
    best, *_ = np.linalg.lstsq(terms, truth.ravel(), rcond=None)
    return (terms @ best).reshape(truth.shape)


def shells(found: np.ndarray, truth: np.ndarray) -> float:
    """Correlation of Fourier coefficients between λ/(4NA) and λ/(2NA) of detail."""
    window = np.prod(np.meshgrid(*(np.hanning(side + 2)[1:-1] for side in truth.shape), indexing="ij"), axis=0)
    a, b = (np.fft.fftn((own - own.mean()) * window) for own in (found, truth))
    grid = np.meshgrid(*(np.fft.fftfreq(side, step) for side, step in zip(truth.shape, VOXEL)), indexing="ij")
    frequency = np.sqrt(sum(axis**2 for axis in grid)) * WAVELENGTH / (2 * APERTURE)
    ring = (frequency > 0.5) & (frequency <= 1)
    product = np.real(a[ring] * b[ring].conj()).sum()
    return float(product / np.sqrt((np.abs(a[ring]) ** 2).sum() * (np.abs(b[ring]) ** 2).sum()))


def plain(y: np.ndarray, psf: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """scikit-image's, on y over its largest value. It cannot be continued, so its steps are made here; the first three
    are compared with it."""
    scale = y.max()
    seen = torch.from_numpy(np.maximum(y, 0) / scale).float()
    size = tuple(fast_length(side + own - 1) for side, own in zip(y.shape, psf.shape))
    spectra = [rfftn(torch.from_numpy(own.copy()).float(), size) for own in (psf, psf[::-1, ::-1, ::-1])]
    middle = tuple(slice((own - 1) // 2, (own - 1) // 2 + side) for side, own in zip(y.shape, psf.shape))

    def convolved(image: torch.Tensor, spectrum: torch.Tensor) -> torch.Tensor:
        return irfftn(rfftn(image, size) * spectrum, size)[middle]

    x = torch.full(y.shape, 0.5)
    for count in range(1, max(ITERATIONS) + 1):
        x = x * convolved(seen / (convolved(x, spectra[0]) + 1e-12), spectra[1])
        if count == 3:
            expected = richardson_lucy(seen.numpy(), psf.astype(np.float32), num_iter=3, clip=False)
            np.testing.assert_allclose(x.numpy(), expected, atol=1e-3 * expected.max())
        if count in ITERATIONS:
            yield count, scale * x.numpy().astype(np.float64)


def bordered(y: np.ndarray, psf: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """With what lies beyond y unknown."""
    seen, operator, variance = torch.from_numpy(y).float(), VolumeBlur(psf, len(y)), Variance(1.0, 0.0)
    levels = Levels.of(seen, operator, variance)
    x, done = start_from(seen, operator, variance, levels), 10
    for count in (own for own in ITERATIONS if own >= done):
        x, done = multiply(operator, seen, variance, x, count - done, bright=levels.bright), count
        yield count, operator.crop(x, y.shape[1:]).numpy().astype(np.float64)


def best(tries: Iterator[tuple[int, np.ndarray]], truth: np.ndarray, *, affine: bool) -> tuple[float, int, np.ndarray]:
    """The one with the highest PSNR; the search ends where it has fallen by 1 dB."""
    found: tuple[float, int, np.ndarray] = (-np.inf, 0, truth)
    for count, x in tries:
        value = psnr(mapped(x, truth) if affine else x, truth)
        if value > found[0]:
            found = value, count, x
        elif value < found[0] - 1:
            break
    return found


def compare(name: str, truth: np.ndarray, y: np.ndarray, psf: np.ndarray, *, affine: bool, draw: Path | None) -> None:
    plain_psnr, plain_count, by_plain = best(plain(y, psf), truth, affine=affine)
    border_psnr, border_count, by_border = best(bordered(y, psf), truth, affine=affine)
    begun = time.perf_counter()
    ours = slir.deblur(y, psf, sigma="auto" if affine else "poisson", voxel_size=(1, 1, 1) if affine else VOXEL)
    seconds = time.perf_counter() - begun
    own = psnr(mapped(ours, truth) if affine else ours, truth)
    lines = f"{name:16} slir {own:6.2f} dB | Richardson–Lucy {plain_psnr:6.2f} ({plain_count}), with its border "
    lines += f"{border_psnr:6.2f} ({border_count}) | gain {own - plain_psnr:+.2f}, {own - border_psnr:+.2f}"
    if not affine:
        lines += " | shells " + ", ".join(f"{shells(own, truth):.3f}" for own in (ours, by_plain, by_border))
    print(f"{lines} | {seconds:.1f} s", flush=True)
    if draw is not None:
        sections(draw / f"{name.replace(' ', '-')}.png", [y, by_plain, by_border, ours, truth], truth)


def sections(path: Path, volumes: list[np.ndarray], truth: np.ndarray) -> None:
    """Brightest voxels along z and along y, side by side, the root of their values."""
    rows = [np.concatenate([volume.max(0), volume.max(1)]) for volume in volumes]
    drawn = [np.sqrt((row / (truth.max() if n else row.max())).clip(0, 1)) for n, row in enumerate(rows)]
    large = np.concatenate(drawn, 1).repeat(4, 0).repeat(4, 1)
    Image.fromarray((255 * large).astype(np.uint8)).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--only", choices=("bars", "simulated"))
    parser.add_argument("--side", type=int, default=48)
    parser.add_argument("--planes", type=int, default=32)
    parser.add_argument("--reach", type=int, nargs=2, default=(25, 31), help="planes and side of the simulated PSF")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draw", type=Path)
    given = parser.parse_args()
    if given.only != "simulated":
        truth, y, psf = (
            tifffile.imread(given.folder / f"bars_{name}.tif").astype(np.float64) for name in ("truth", "data", "psf")
        )
        psf = slir.psf.from_array(psf[1:, 1:, 1:])  # sides are even, with the light in front of the middle
        compare("bars", truth, y, psf, affine=True, draw=given.draw)
    if given.only != "bars":
        size = (given.reach[0], given.reach[1], given.reach[1])
        psf = slir.psf.widefield(APERTURE, WAVELENGTH, VOXEL, size=size)
        for kind in KINDS:
            for photons in PHOTONS:
                for seed in range(given.seeds):
                    own = simulated(kind, psf, (given.planes, given.side, given.side), photons, seed)
                    compare(f"{kind} {photons} {seed}", own.truth, own.y, psf, affine=False, draw=given.draw)


if __name__ == "__main__":
    main()
