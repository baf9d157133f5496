"""Fit to your own pictures: an archive of typed pages, photographed out of focus.

The models that ship were learnt from photographs of landscapes, buildings and animals. Whoever has pictures of one kind
only can do better, with a handful of clean ones: letters are less varied than the world. Six clean pages are shown to
`slir.fit`, with the blur and the noise that the others suffer from; it needs half a minute, on a laptop. The page that
is restored then has other words.

Read such a page with care: what the blur has made alike cannot be told apart again, and an e may come out as an o that
is as sharp as any other letter.
"""

from __future__ import annotations

import time

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from story import Story, blurred, crop, psnr, recorded

import slir

TEXT = (
    "the of and to in is that for it as was with be by on not his but at are this have from or had an they which one "
    "you were her all she there would their we him been has when who will more no if out so said what up its about "
    "into than them can only other new some could time these two may then do first any my now such like our over"
)


def page(rng: np.random.Generator, side: int = 256) -> np.ndarray:
    """A clean page of words at random, side × side uint8; drawn twice as large and reduced, so that edges are soft."""
    sheet = Image.new("L", (2 * side, 2 * side), 235)
    draw, top = ImageDraw.Draw(sheet), 8
    while top < 2 * side:
        size = int(rng.choice([22, 24, 28]))
        line = " ".join(rng.choice(TEXT.split(), 16))
        line = line.title() if rng.random() < 0.3 else line
        place, ink = (8 - int(rng.integers(60)), top), int(rng.integers(20, 60))
        draw.text(place, line, fill=ink, font=ImageFont.load_default(size=size))
        top += round(1.35 * size)
    return np.asarray(sheet.resize((side, side), Image.Resampling.BOX))


def main(argv: list[str] | None = None) -> Story:
    story = Story.begin(__file__, __doc__, argv)
    rng = np.random.default_rng(0)
    clean_pages = [page(rng, 80 if story.short else 256) for _ in range(6)]
    psf, sigma = slir.psf.defocus(2.5), 4.0
    seen, truth = blurred(page(rng, 128 if story.short else 256), psf)
    photo = recorded(seen, sigma, rng)

    # sigma of a model counts where the range is 1.
    settings = {"operator": slir.operators.Blur(psf), "sigma": sigma / 255}
    started = time.perf_counter()
    model = slir.fit(clean_pages, crops=24 if story.short else 80, **settings)
    seconds = time.perf_counter() - started
    model.save(story.out / "pages.safetensors")
    shipped = slir.deblur(photo, psf, sigma=sigma)
    fitted = slir.deblur(photo, psf, sigma=sigma, model=story.out / "pages.safetensors")

    print(f"fitted in {seconds:.0f} seconds")
    story.gain("with the model that ships", psnr(photo, truth), psnr(shipped, truth))
    story.gain("with one fitted to six pages", psnr(photo, truth), psnr(fitted, truth))
    shown = {"photograph": photo, "shipped model": shipped, "fitted to six pages": fitted, "truth": truth}
    story.figure("whole", shown)
    story.figure("near", {label: crop(image, (100, 128), 110) for label, image in shown.items()}, zoom=3)
    return story.end()


if __name__ == "__main__":
    main()
