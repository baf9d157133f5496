"""What is degraded how: every case of every table, made from a data folder, the same on every machine.

Pixel values are in [0, 1]. `i` is the image's index in its folder's sorted file list, and noise is drawn on the CPU in
float32 from `torch.Generator().manual_seed(i)`.

* deblurring: y = valid convolution of x with the kernel + noise of 0.01, rounded to 8 bits and clipped. What lies
  outside y is unknown to the method. PSNR over y's support.
* upsampling: luma of Set5, y = every second pixel of the circular convolution with a Gaussian of standard deviation
  0.8, rounded to 8 bits. PSNR with 2 pixels cut from each side.
* denoising: Set12, y = x + noise of 15, 25 or 50 over 255, neither clipped nor rounded.
* colour: CBSD68, y = x + noise of 15, 25 or 50 over 255 on each channel, neither clipped nor rounded.
* composition: deblurring with kernel 2 of images of the training set, from banks of a stated subject.
* inpainting (not in the paper): Set12, each pixel kept with probability 0.2, no noise; a lost pixel reads 0 in y.
* robustness (not in the paper): deblurring with kernel 1, where the method is told another σ or another kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import map_coordinates
from scipy.signal import fftconvolve

from slir.errors import FileError, InputError
from slir_bench.files import KERNELS, colour, draw, eight_bits, grey, list_images, load_kernel, luma

NOISE_LEVELS = (15, 25, 50)
DEBLUR_SIGMA = 0.01
KEPT = 0.2
"""Share of the pixels that inpainting keeps."""

COMPOSITION: dict[str, tuple[str, ...]] = {
    "penguin": ("106025", "106020", "103041", "8049", "268002"),
    "tiger": ("108073", "108041", "187039", "134052", "134008"),
    "bear": ("100080", "100075", "100098", "94079", "309004"),
    "building": ("277095", "24063", "67079", "385028", "301007"),
}
"""Images of BSD300's training set by subject: the test image, then the four training images.

The paper does not name its files; these were chosen by eye. The set shows two penguins and three tigers only, fewer
than the five that the paper speaks of, so the nearest subjects fill up: gulls (103041), a booby (8049) and a cormorant
(268002) among the penguins, a leopard (134052) and a cheetah (134008) among the tigers.
"""
HYBRID = tuple(names[1] for names in COMPOSITION.values())
"""The first training image of each subject."""


@dataclass(frozen=True)
class Case:
    """One degraded image, and all that a method may know about how it came about.

    `kind` is "deblur", "upsample", "denoise" or "inpaint". `clean` is for `psnr` alone. A restoration has the shape of
    `clean`, or that shape less `border` pixels on each side, which is all that `psnr` looks at.
    """

    table: str
    setting: str
    name: str
    kind: str
    y: np.ndarray
    clean: np.ndarray
    sigma: float
    border: int = 0
    psf: np.ndarray | None = None
    factor: int = 1
    mask: np.ndarray | None = None

    @property
    def target(self) -> np.ndarray:
        """The part of `clean` that counts."""
        return _cut(self.clean, self.border)


@dataclass(frozen=True)
class Group:
    """The cases of one row of a table, and the clean images that a method may be fitted on for them.

    `train` is the training folder's list of files, or for the composition table the four files of the bank.
    """

    table: str
    setting: str
    cases: tuple[Case, ...]
    train: tuple[Path, ...]

    def train_images(self, count: int, *, seed: int = 0) -> list[np.ndarray]:
        """`count` grey images drawn without replacement, or all of them where there are fewer."""
        return draw(self.train, count, seed)


def groups(table: str, data: Path | str, *, subset: str = "all") -> Iterator[Group]:
    """The groups of `table`, one loaded at a time.

    `subset` is "all"; "subset9", every eighth image of the deblurring set and all of the others; or "smoke", the first
    image of each group.
    """
    if table not in TABLES:
        raise InputError("table", f"be one of {', '.join(TABLES)}", repr(table), "Pass one of these names.")
    if subset not in ("all", "subset9", "smoke"):
        raise InputError("subset", "be all, subset9 or smoke", repr(subset), "Pass one of these names.")
    return TABLES[table](Path(data), subset)


def train_images(data: Path | str, count: int, seed: int = 0) -> list[np.ndarray]:
    """`count` grey float32 images of `bsds_train`, drawn without replacement."""
    return draw(list_images(Path(data), "bsds_train"), count, seed)


def psnr(case: Case, restored: np.ndarray) -> float:
    """10·log10(1/MSE) over `case.target`, the restoration clipped to [0, 1]. Takes the full size or the target's."""
    restored = np.asarray(restored, np.float64)
    if restored.shape == case.clean.shape:
        restored = _cut(restored, case.border)
    if restored.shape != case.target.shape:
        rule = f"have the shape {case.clean.shape} of the clean image or {case.target.shape} of the part that counts"
        raise InputError("restored", rule, f"of shape {restored.shape}", "Return the image on the clean image's grid.")
    if not np.isfinite(restored).all():
        raise InputError("restored", "be finite", "partly NaN or infinite", "Mend the method: nothing was recorded.")
    error = float(np.mean((np.clip(restored, 0, 1) - case.target) ** 2))
    return 10 * float(np.log10(1 / max(error, 1e-20)))


# ------------------------------------------------------------------------------------------------------- the tables


def _deblurring(data: Path, subset: str) -> Iterator[Group]:
    files, train = list_images(data, "bsd68"), list_images(data, "bsds_train")
    chosen = _choose(files, subset, every=8)
    for setting in KERNELS:
        psf = load_kernel(data, setting)
        cases = tuple(blurred("deblurring", setting, files[i].stem, grey(files[i]), psf, seed=i) for i in chosen)
        yield Group("deblurring", setting, cases, train)


def _upsampling(data: Path, subset: str) -> Iterator[Group]:
    files, train = list_images(data, "set5"), list_images(data, "bsds_train")
    cases = tuple(shrunk("upsampling", "x2", files[i].stem, luma(files[i])) for i in _choose(files, subset))
    yield Group("upsampling", "x2", cases, train)


def _denoising(data: Path, subset: str) -> Iterator[Group]:
    files, train = list_images(data, "set12"), list_images(data, "bsds_train")
    for level in NOISE_LEVELS:
        cases = []
        for i in _choose(files, subset):
            x = grey(files[i])
            y = x + np.float32(level / 255) * noise(x.shape, i)
            cases.append(Case("denoising", f"σ={level}", files[i].stem, "denoise", y, x, level / 255))
        yield Group("denoising", f"σ={level}", tuple(cases), train)


def _colour(data: Path, subset: str) -> Iterator[Group]:
    files, train = list_images(data, "cbsd68"), list_images(data, "bsds_train")
    for level in NOISE_LEVELS:
        cases = []
        for i in _choose(files, subset, every=8):
            x = colour(files[i])
            y = x + np.float32(level / 255) * noise(x.shape, i)
            cases.append(Case("colour", f"σ={level}", files[i].stem, "denoise", y, x, level / 255))
        yield Group("colour", f"σ={level}", tuple(cases), train)


def _composition(data: Path, subset: str) -> Iterator[Group]:
    files = {path.stem: (i, path) for i, path in enumerate(list_images(data, "bsds_train"))}
    banks = {subject: names[1:] for subject, names in COMPOSITION.items()} | {"hybrid": HYBRID}
    missing = {name for names in COMPOSITION.values() for name in names} - files.keys()
    if missing:
        raise FileError(data / "bsds_train", f"lacks {', '.join(sorted(missing))}", "Use the 200 images of BSD300.")
    psf = load_kernel(data, "kernel 2")
    tests = list(COMPOSITION)[: 1 if subset == "smoke" else None]
    for setting, names in banks.items():
        cases = []
        for subject in tests:
            i, path = files[COMPOSITION[subject][0]]
            cases.append(blurred("composition", setting, subject, grey(path), psf, seed=i))
        yield Group("composition", setting, tuple(cases), tuple(files[name][1] for name in names))


def _inpainting(data: Path, subset: str) -> Iterator[Group]:
    files, train = list_images(data, "set12"), list_images(data, "bsds_train")
    cases = []
    for i in _choose(files, subset):
        x = grey(files[i])
        mask = (torch.rand(x.shape, generator=torch.Generator().manual_seed(i)) < KEPT).numpy()
        y = np.where(mask, x, np.float32(0))
        cases.append(Case("inpainting", "80 % missing", files[i].stem, "inpaint", y, x, 0.0, mask=mask))
    yield Group("inpainting", "80 % missing", tuple(cases), train)


def _robustness(data: Path, subset: str) -> Iterator[Group]:
    files, train = list_images(data, "bsd68"), list_images(data, "bsds_train")
    psf = load_kernel(data, "kernel 1")
    told = {
        "told the truth": (psf, 1.0),
        "σ 20 % too small": (psf, 0.8),
        "σ 20 % too large": (psf, 1.2),
        "kernel 5 % noisy": (noisy_kernel(psf, 0.05), 1.0),
        "kernel a pixel too wide": (wider(psf), 1.0),
    }
    for setting, (kernel, share) in told.items():
        cases = []
        for i in _choose(files, subset, every=8):
            case = blurred("robustness", setting, files[i].stem, grey(files[i]), psf, seed=i)
            cases.append(replace(case, psf=kernel, sigma=share * case.sigma))
        yield Group("robustness", setting, tuple(cases), train)


def noisy_kernel(psf: np.ndarray, share: float) -> np.ndarray:
    """The kernel with noise of this share of its largest value on its support, sum 1."""
    random = np.random.default_rng(0).standard_normal(psf.shape)
    wrong = np.clip(psf + share * psf.max() * random * (psf > 0), 0, None)
    return (wrong / wrong.sum()).astype(np.float32)


def wider(psf: np.ndarray) -> np.ndarray:
    """The kernel stretched about its centre so that its side grows by a pixel, sum 1, on the same pixels."""
    side = psf.shape[0]
    place = (np.arange(side) - side // 2) * side / (side + 1) + side // 2
    stretched = map_coordinates(psf.astype(np.float64), np.meshgrid(place, place, indexing="ij"), order=1)
    return (stretched / stretched.sum()).astype(np.float32)


TABLES: dict[str, Callable[[Path, str], Iterator[Group]]] = {
    "deblurring": _deblurring,
    "upsampling": _upsampling,
    "denoising": _denoising,
    "colour": _colour,
    "composition": _composition,
    "inpainting": _inpainting,
    "robustness": _robustness,
}

# ----------------------------------------------------------------------------------------------------- degradations


def noise(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Standard normal float32 noise, the same on every machine."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).numpy()


def blurred(table: str, setting: str, name: str, x: np.ndarray, psf: np.ndarray, *, seed: int) -> Case:
    """y = round₂₅₅(k ∗ x + 0.01 ε), of the valid size; `psf` is square and odd."""
    y = fftconvolve(x.astype(np.float64), psf.astype(np.float64), mode="valid")
    y = eight_bits(y + DEBLUR_SIGMA * noise(y.shape, seed))
    return Case(table, setting, name, "deblur", y, x, DEBLUR_SIGMA, border=psf.shape[0] // 2, psf=psf)


def shrunk(table: str, setting: str, name: str, x: np.ndarray) -> Case:
    """y = round₂₅₅(↓2 (g ⊛ x)), the convolution circular."""
    x = x[: x.shape[0] // 2 * 2, : x.shape[1] // 2 * 2]
    psf = gaussian(0.8, 3)
    wide = fftconvolve(np.pad(x.astype(np.float64), 3, mode="wrap"), psf.astype(np.float64), mode="valid")
    return Case(table, setting, name, "upsample", eight_bits(wide[::2, ::2]), x, 0.0, border=2, psf=psf, factor=2)


def gaussian(deviation: float, radius: int) -> np.ndarray:
    """A Gaussian point-spread function on (2·radius+1)² pixels, sum 1."""
    line = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * deviation**2))
    return (np.outer(line, line) / line.sum() ** 2).astype(np.float32)


def _choose(files: tuple[Path, ...], subset: str, *, every: int = 1) -> range:
    return range(1) if subset == "smoke" else range(0, len(files), every if subset == "subset9" else 1)


def _cut(image: np.ndarray, border: int) -> np.ndarray:
    return image[border : image.shape[0] - border, border : image.shape[1] - border]
