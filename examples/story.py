"""What the scripts of the gallery share: pictures, the degradations that they invent, figures, and what is told.

Every script tells a `Story`. It prints what it does and leaves behind, in the folder of `--out`, its figures and a
text file of what it printed; the documentation shows both.
"""

from __future__ import annotations

import argparse
import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy.signal import fftconvolve

from slir.pictures import side_by_side

DATA = Path(__file__).resolve().parent / "data"
SHORT = 112  # pixels a side in short mode
MOST_BYTES = 120_000  # of a figure


@dataclass(frozen=True)
class Gain:
    """PSNR in dB of a picture before and after."""

    what: str
    before: float
    after: float


@dataclass
class Story:
    """One script's run: how it was called, and what it has told so far."""

    name: str
    out: Path
    short: bool
    lines: list[str] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    figures: list[Path] = field(default_factory=list)

    @classmethod
    def begin(cls, file: str, about: str | None, argv: list[str] | None) -> Story:
        """Read the options that all scripts have."""
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--out", type=Path, default=Path("gallery"), metavar="DIR", help="folder for the figures")
        parser.add_argument("--short", action="store_true", help="small crops, to see in seconds that all works")
        options = parser.parse_args(argv)
        options.out.mkdir(parents=True, exist_ok=True)
        return cls(Path(file).stem, options.out, options.short)

    def picture(self, name: str, middle: tuple[int, int]) -> np.ndarray:
        """A picture of examples/data as uint8; in short mode a crop around `middle`."""
        pixels = np.asarray(Image.open(DATA / f"{name}.png"))
        return crop(pixels, middle, SHORT) if self.short else pixels

    def tell(self, line: str) -> None:
        print(line)
        self.lines.append(line)

    def gain(self, what: str, before: float, after: float) -> None:
        """Tell how much better a picture got."""
        self.gains.append(Gain(what, before, after))
        self.tell(f"{what}: PSNR {before:.2f} dB before, {after:.2f} dB after")

    def figure(self, name: str, images: dict[str, np.ndarray], *, zoom: int = 1) -> None:
        """Write pictures side by side under their labels, `zoom` times enlarged, as a JPEG of moderate size."""
        size = max(10, sum(zoom * image.shape[1] for image in images.values()) // 65)  # pages show it about 800 wide
        enlarged = [labelled(image.repeat(zoom, 0).repeat(zoom, 1), label, size) for label, image in images.items()]
        sheet = Image.fromarray(side_by_side(enlarged))
        path = self.out / f"{self.name}-{name}.jpg"
        for quality in (95, 92, 88, 84, 78, 70):
            stream = io.BytesIO()
            sheet.save(stream, "JPEG", quality=quality, subsampling=0, optimize=True)
            if stream.tell() <= MOST_BYTES:
                break
        path.write_bytes(stream.getvalue())
        self.figures.append(path)

    def end(self) -> Story:
        """Leave behind what was told."""
        (self.out / f"{self.name}.txt").write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        return self


def labelled(image: np.ndarray, text: str, size: int) -> np.ndarray:
    """The image under a line of text, on white, as wide as the wider of the two."""
    font = ImageFont.load_default(size=size)
    width = max(image.shape[1], int(np.ceil(font.getlength(text))))
    sheet = Image.new("RGB", (width, image.shape[0] + round(1.5 * size)), "white")
    ImageDraw.Draw(sheet).text((0, 0), text, fill="black", font=font)
    sheet.paste(Image.fromarray(np.ascontiguousarray(image)).convert("RGB"), (0, round(1.5 * size)))
    return np.asarray(sheet)


def crop(image: np.ndarray, middle: tuple[int, int], side: int) -> np.ndarray:
    """side × side pixels around `middle`, moved inwards where they would leave the image."""
    top, left = (max(0, min(at - side // 2, of - side)) for at, of in zip(middle, image.shape))
    return image[top : top + side, left : left + side]


def psnr(image: np.ndarray, truth: np.ndarray, white: float = 255.0) -> float:
    """10 log₁₀(white² / MSE), in dB."""
    error = np.mean((image.astype(np.float64) - truth.astype(np.float64)) ** 2)
    return float(10 * np.log10(white**2 / error))


def blurred(scene: np.ndarray, psf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a camera sees of a scene through a PSF, and the sharp scene in the same frame.

    The frame is smaller than the scene: near its edge the camera mixes in what lies beyond it, as cameras do.
    """
    kernel = psf if scene.ndim == 2 else psf[..., None]
    seen = fftconvolve(scene.astype(np.float64), kernel, mode="valid", axes=(0, 1))
    top, left = (side // 2 for side in psf.shape)
    return seen, scene[top : top + seen.shape[0], left : left + seen.shape[1]]


def recorded(light: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """Noise of standard deviation `sigma` added, rounded and clipped to 8 bits."""
    return as_bytes(light + sigma * rng.standard_normal(light.shape))


def as_bytes(values: np.ndarray, black: float = 0.0, white: float = 255.0) -> np.ndarray:
    """Values as 8-bit grey levels, for figures."""
    return np.clip(np.rint(255 * (values - black) / (white - black)), 0, 255).astype(np.uint8)
