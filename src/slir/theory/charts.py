"""Line charts as pictures, without a plotting library: axes, a light grid, error bars, a legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 900, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 86, 212, 70, 70
_BARE = 40  # right margin without a legend
_FINE = 3  # drawn so many times larger, then reduced: smooth lines
_INK, _GREY, _GRID = (34, 34, 34), (110, 110, 110), (226, 226, 226)

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Series:
    """What is drawn in one colour, with a line in the legend unless `label` is empty.

    style: "points", with error bars of half length `bars` where they are given; "line"; or "dashed".
    shift: pixels by which points are moved to the right, so that bars do not hide each other.
    """

    label: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    colour: Colour
    bars: Sequence[float] | np.ndarray | None = None
    style: str = "points"
    shift: float = 0.0


@dataclass(frozen=True)
class Axis:
    """What an axis shows. logarithmic or not; ticks: None chooses them."""

    label: str
    logarithmic: bool = True
    ticks: Sequence[float] | None = None

    def place(self, low: float, high: float) -> Callable[[float], float]:
        """Value -> 0 … 1 along the axis."""
        if self.logarithmic:
            return lambda value: float(np.log(value / low) / np.log(high / low))
        return lambda value: (value - low) / (high - low)

    def limits(self, values: np.ndarray) -> tuple[float, float]:
        """With a margin on both sides."""
        low, high = float(values.min()), float(values.max())
        if self.logarithmic:
            margin = max((high / low) ** 0.06, 1.02)
            return low / margin, high * margin
        margin = 0.06 * (high - low) or 0.5
        return low - margin, high + margin

    def chosen(self, low: float, high: float) -> list[float]:
        """Ticks inside the limits: those given, else round numbers, four to nine of them where there are such."""
        if self.ticks is not None:
            return [tick for tick in self.ticks if low <= tick <= high]
        if self.logarithmic and high / low > 20:
            powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
            return [k * 10.0**p for p in powers for k in (1, 2, 5) if low <= k * 10.0**p <= high]
        span = 10.0 ** np.floor(np.log10(high - low))
        step = next(s * span for s in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (s * span) <= 9)
        return [float(k * step) for k in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


def line_chart(series: Sequence[Series], *, title: str, subtitle: str, x: Axis, y: Axis) -> np.ndarray:
    """-> (HEIGHT, WIDTH, 3) uint8. Labels must keep to what Pillow's own font has: no Greek letters."""
    sheet = _Sheet(series, x, y)
    sheet.frame(title, subtitle)
    for each in series:
        sheet.line(each) if each.style != "points" else sheet.points(each)
    sheet.legend(series)
    return np.array(sheet.image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))


class _Sheet:
    """The picture while it is drawn."""

    def __init__(self, series: Sequence[Series], x: Axis, y: Axis):
        self.image = Image.new("RGB", (WIDTH * _FINE, HEIGHT * _FINE), "white")
        self.draw = ImageDraw.Draw(self.image)
        self.x, self.y = x, y
        self.right = WIDTH - (_RIGHT if any(each.label for each in series) else _BARE)
        self.x_limits = x.limits(np.concatenate([np.asarray(each.x, float) for each in series]))
        reached = [np.asarray(each.y, float) + sign * _bars(each) for each in series for sign in (-1, 1)]
        self.y_limits = y.limits(np.concatenate(reached))
        self.across, self.up = x.place(*self.x_limits), y.place(*self.y_limits)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Values -> pixels of the large picture."""
        return (
            _FINE * (_LEFT + self.across(x) * (self.right - _LEFT)),
            _FINE * (HEIGHT - _BOTTOM - self.up(y) * (HEIGHT - _TOP - _BOTTOM)),
        )

    def frame(self, title: str, subtitle: str) -> None:
        (x_low, x_high), (y_low, y_high) = self.x_limits, self.y_limits
        for tick in self.x.chosen(x_low, x_high):
            foot, head = self.at(tick, y_low), self.at(tick, y_high)
            self.draw.line([foot, head], fill=_GRID, width=_FINE)
            self.text((foot[0], foot[1] + 8 * _FINE), f"{tick:g}", anchor="ma")
        for tick in self.y.chosen(y_low, y_high):
            start, end = self.at(x_low, tick), self.at(x_high, tick)
            self.draw.line([start, end], fill=_GRID, width=_FINE)
            self.text((start[0] - 8 * _FINE, start[1]), f"{tick:g}", anchor="rm")
        self.draw.line([self.at(x_low, y_high), self.at(x_low, y_low), self.at(x_high, y_low)], fill=_GREY, width=_FINE)
        self.text((_LEFT * _FINE, 12 * _FINE), title, size=18)
        self.text((_LEFT * _FINE, 38 * _FINE), subtitle, size=13, fill=_GREY)
        self.text((self.at((x_low * x_high) ** 0.5 if self.x.logarithmic else (x_low + x_high) / 2, y_low)[0],
                   (HEIGHT - 34) * _FINE), self.x.label, anchor="ma")  # fmt: skip
        self.sideways(self.y.label)

    def sideways(self, words: str) -> None:
        """The label of the vertical axis."""
        font = _font(15)
        strip = Image.new("RGB", (int(font.getlength(words)) + 2, 24 * _FINE), "white")
        ImageDraw.Draw(strip).text((0, 0), words, fill=_INK, font=font)
        turned = strip.rotate(90, expand=True)
        middle = _FINE * (_TOP + (HEIGHT - _TOP - _BOTTOM) // 2)
        self.image.paste(turned, (10 * _FINE, middle - turned.height // 2))

    def line(self, series: Series) -> None:
        places = [self.at(x, y) for x, y in zip(series.x, series.y)]
        if series.style == "line":
            self.draw.line(places, fill=series.colour, width=2 * _FINE, joint="curve")
            return
        for start, end in _dashes(places, 9 * _FINE, 6 * _FINE):
            self.draw.line([start, end], fill=series.colour, width=2 * _FINE)

    def points(self, series: Series) -> None:
        for x, y, bar in zip(series.x, series.y, _bars(series)):
            (column, row), foot, head = self.at(x, y), self.at(x, y - bar)[1], self.at(x, y + bar)[1]
            column += series.shift * _FINE
            if bar:
                self.draw.line([(column, foot), (column, head)], fill=series.colour, width=_FINE + 2)
            self.disc((column, row), series.colour)

    def disc(self, place: tuple[float, float], colour: Colour) -> None:
        radius = 4.5 * _FINE
        column, row = place
        self.draw.ellipse([column - radius, row - radius, column + radius, row + radius], fill=colour)

    def legend(self, series: Sequence[Series]) -> None:
        left, top = (self.right + 22) * _FINE, (_TOP + 8) * _FINE
        for each in (each for each in series if each.label):
            if each.style == "points":
                self.disc((left + 12 * _FINE, top), each.colour)
            else:
                ends = [(left, top), (left + 24 * _FINE, top)]
                pieces = _dashes(ends, 9 * _FINE, 6 * _FINE) if each.style == "dashed" else [tuple(ends)]
                for piece in pieces:
                    self.draw.line(list(piece), fill=each.colour, width=2 * _FINE)
            for words in each.label.split("\n"):
                self.text((left + 34 * _FINE, top), words, anchor="lm")
                top += 20 * _FINE
            top += 5 * _FINE

    def text(
        self, place: tuple[float, float], words: str, *, size: int = 15, anchor: str = "la", fill: Colour = _INK
    ) -> None:
        self.draw.text(place, words, fill=fill, font=_font(size), anchor=anchor)


def _bars(series: Series) -> np.ndarray:
    return np.zeros(len(series.y)) if series.bars is None else np.asarray(series.bars, float)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * _FINE)


def _dashes(
    places: Sequence[tuple[float, float]], on: float, off: float
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Pieces of a path, `on` long and `off` apart."""
    path = np.asarray(places, float)
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    pieces = []
    for start in np.arange(0, lengths[-1], on + off):
        ends = np.clip([start, start + on], 0, lengths[-1])
        across, down = (np.interp(ends, lengths, path[:, k]) for k in (0, 1))
        pieces.append(((float(across[0]), float(down[0])), (float(across[1]), float(down[1]))))
    return pieces
