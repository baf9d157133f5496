"""What `slir.develop` gains over denoising before or after demosaicking, on simulated raw files. It needs rawpy.

    python benchmarks/raw_files.py FOLDER [--number 6] [--side 128]

FOLDER holds sRGB pictures. Each goes through the sensor of `tests/dng.py` (Bayer, 14 bits, Poisson and read noise) at
three levels of noise. The noise is found in a part of 320×320 pixels, and a smaller part is restored. Printed is colour
PSNR against the picture, over sRGB values: of `slir.develop` with the noise that it finds, and with the true noise; of
AHD demosaicking by LibRaw, alone, after `slir.denoise(sigma="poisson-gaussian")` of each plane of the mosaic, and
before `slir.denoise(sigma="auto")` of the picture.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import rawpy
from PIL import Image

import slir
from slir.development import RawNoise
from slir.io import icc, read_raw

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import dng

RGGB = np.array([[0, 1], [1, 2]])
LEVELS = {"low": (1 / 3000, 0.0015), "middle": (1 / 600, 0.004), "high": (1 / 150, 0.009)}
SPAN, WHOLE, MARGIN = dng.WHITE - dng.BLACK, 320, 8


def ahd(mosaic: np.ndarray) -> np.ndarray:
    """LibRaw's demosaicking, in sRGB values."""
    with rawpy.imread(io.BytesIO(dng.dng(mosaic, RGGB))) as raw:
        how = {"gamma": (1, 1), "no_auto_bright": True, "use_camera_wb": True, "output_bps": 16, "user_flip": 0}
        return icc.encoded(raw.postprocess(**how) / 65535)


def planes_denoised(mosaic: np.ndarray) -> np.ndarray:
    """The mosaic, each of its four planes denoised by itself."""
    result = mosaic.copy()
    for row in range(2):
        for col in range(2):
            plane = mosaic[row::2, col::2]
            result[row::2, col::2] = slir.denoise(plane, sigma="poisson-gaussian", data_range=(dng.BLACK, dng.WHITE))
    return result


def psnr(found: np.ndarray, truth: np.ndarray) -> float:
    error = (found - truth)[MARGIN:-MARGIN, MARGIN:-MARGIN]
    return float(-10 * np.log10(np.square(error).mean()))


def results(srgb: np.ndarray, side: int, gain: float, read: float, seed: int) -> dict[str, float]:
    """PSNR of each method on one picture."""
    mosaic = dng.mosaic(srgb, RGGB, gain=gain, read=read, seed=seed)
    top, left = ((length - side) // 4 * 2 for length in mosaic.shape)
    part, truth = mosaic[top : top + side, left : left + side], srgb[top : top + side, left : left + side]
    with tempfile.TemporaryDirectory() as folder:
        noise = RawNoise.of(read_raw(dng.write(Path(folder, "whole.dng"), mosaic, RGGB)))
        raw = read_raw(dng.write(Path(folder, "part.dng"), part, RGGB))
    true = RawNoise((gain * SPAN,) * 3, (read * SPAN,) * 3)
    plain = ahd(part)
    return {
        "develop": psnr(slir.develop(raw, sigma=noise, exposure=0).pixels / 65535, truth),
        "noise told": psnr(slir.develop(raw, sigma=true, exposure=0).pixels / 65535, truth),
        "AHD": psnr(plain, truth),
        "planes, AHD": psnr(ahd(planes_denoised(part)), truth),
        "AHD, denoise": psnr(slir.denoise(plain.astype(np.float32), data_range=1.0, channel_axis=-1), truth),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--number", type=int, default=6)
    parser.add_argument("--side", type=int, default=128)
    given = parser.parse_args()
    warnings.simplefilter("ignore", slir.SlirWarning)
    files = sorted(path for path in given.folder.iterdir() if path.suffix in (".png", ".jpg"))
    files = files[:: max(1, len(files) // given.number)][: given.number]
    for name, (gain, read) in LEVELS.items():
        rows = []
        for seed, file in enumerate(files):
            srgb = np.asarray(Image.open(file).convert("RGB"))[:WHOLE, :WHOLE] / 255 * 0.97
            rows.append(results(srgb, given.side, gain, read, seed))
        means = {method: np.mean([row[method] for row in rows]) for method in rows[0]}
        print(f"{name:8}" + "".join(f"  {method} {value:.2f}" for method, value in means.items()), flush=True)


if __name__ == "__main__":
    main()
