"""OME-Zarr images, and plain Zarr arrays, by the package zarr: windows read and write the chunks that they touch."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import shutil
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slir.errors import FileError
from slir.io import zarr_meta
from slir.io.atomic import whole_folder
from slir.io.picture import BEST_RATIO, LARGE, MAX_PIXELS, Head, Meta, range_of
from slir.io.sink import Sink
from slir.io.source import Source, reasons
from slir.io.tiff_page import MOST_SIDE
from slir.io.zarr_meta import FILES, NAME, Multiscale

EXTENSIONS = (".zarr",)
_DTYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64", "int64", "uint64")
_CHUNK, _SMALLEST = 1024, 512  # of images that come from other formats: a chunk's side, the last level's
_AT_ONCE = 1 << 27  # bytes of chunks that are decoded side by side


@dataclass(frozen=True)
class Private:
    """What only Zarr has: the store that was read, and which of its arrays are levels of the image."""

    path: Path
    image: Multiscale


class ZarrSource(Source):
    """The first image of an OME-Zarr store, at its finest level, or a plain array of two or more axes."""

    form = NAME

    def __init__(self, path: Path):
        self.path = path
        with reasons(path, NAME), _quiet():
            self._open()

    def _open(self) -> None:
        import zarr

        from slir.io.zarr_codecs import bounded

        for _ in zarr_meta.contents(self.path):
            pass  # nothing in it leads elsewhere
        root = zarr.open(self.path, mode="r")
        if isinstance(root, zarr.Group):
            image = zarr_meta.multiscale(dict(root.attrs), name=self.path.name)
            levels: list[Any] = [root[level] for level in image.levels]
        else:
            image, levels = Multiscale(("",), ""), [root]
        array = levels[0]
        if any(not isinstance(level, zarr.Array) or len(level.shape) != len(array.shape) for level in levels):
            raise ValueError("has damaged metadata: its levels are no arrays of the same axes")
        if max(array.shape) > MOST_SIDE:
            raise ValueError(f"declares axes of {array.shape} pixels, which makes no sense")
        shapes = [level.shape for level in levels]
        if any(side > before for pair in itertools.pairwise(shapes) for before, side in zip(*pair)):
            raise ValueError("has damaged metadata: its levels do not become smaller")
        if len(array.shape) < 2 or 0 in array.shape:
            raise ValueError(f"has axes of lengths {array.shape}; slir reads arrays of two axes or more")
        if np.dtype(array.dtype).newbyteorder("=").name not in _DTYPES:
            raise ValueError(f"has pixels of type {array.dtype}, which slir cannot read")
        largest = max(math.prod(level.chunks) for level in levels)
        if largest > MAX_PIXELS:
            raise ValueError(f"declares chunks of {largest:,} pixels; the most is {MAX_PIXELS:,}")
        declared = math.prod(array.shape) * np.dtype(array.dtype).itemsize
        needed = declared // BEST_RATIO if declared > LARGE else 0
        if not zarr_meta.holds_bytes(self.path / image.levels[0], needed):
            raise ValueError(f"declares {' × '.join(map(str, array.shape))} pixels but holds too few bytes for them")
        self._array, *_ = (bounded(level) for level in levels)
        leading = array.shape[:-2]
        names = image.axes[:-2] if len(image.axes) == len(array.shape) else "Q" * len(leading)
        long = [(name.upper(), side) for name, side in zip(names, leading) if side > 1]
        dtype = np.dtype(array.dtype).newbyteorder("=")
        self.head = Head(
            size=(array.shape[-2], array.shape[-1]),
            dtype=dtype,
            axes="".join(name for name, _ in long),
            shape=tuple(side for _, side in long),
            data_range=range_of(dtype),
            large=True,
            meta=Meta(resolution=image.resolution, private={NAME: Private(self.path.absolute(), image)}),
        )

    def _read(self, plane: int, rows: range, cols: range) -> np.ndarray:
        """Chunks are decoded side by side, so of large ones only a few are asked for at once."""
        place = place_of(plane, self._array.shape)
        window = np.empty((len(rows), len(cols)), self.dtype)
        sides = self._array.chunks[-2:]
        room = max(1, _AT_ONCE // (math.prod(self._array.chunks) * self.dtype.itemsize))
        across = sides[1] * min(room, -(-self.size[1] // sides[1]))
        down = sides[0] * max(1, room * sides[1] // across)
        with _quiet():
            for top, bottom in itertools.pairwise(_cuts(rows, down)):
                for left, right in itertools.pairwise(_cuts(cols, across)):
                    part = self._array[(*place, slice(top, bottom), slice(left, right))]
                    window[top - rows.start : bottom - rows.start, left - cols.start : right - cols.start] = part
        return window[..., None]


class ZarrSink(Sink):
    """Writes a store as the one that was read: all that is not pixels is copied, coarser levels are averaged anew."""

    def __init__(self, path: Path, head: Head):
        super().__init__(path, head)
        private = head.meta.private.get(NAME)
        self._private = private if isinstance(private, Private) else None
        leading = "" if self._private else zarr_meta.new_axes(head.axes) or ""
        #: OME-Zarr wants axes in the order t, c, z, whatever order the planes come in.
        self._order = [leading.index(axis) for axis in "tcz" if axis in leading]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.head.shape[axis] for axis in self._order) if self._order else self.head.shape

    def _place(self) -> contextlib.AbstractContextManager[Path]:
        return whole_folder(self.path)

    def _start(self, temporary: Path) -> None:
        import zarr

        with self._writing():
            if self._private is None:
                self._levels = _new_store(temporary, self.head, self._order, self.path.stem)
            else:
                levels = _copied_store(temporary, self._private, self.head)
                self._levels = [zarr.open_array(level, mode="r+") for level in levels]
        finest = self._levels[0]
        shape = finest.shards or finest.chunks
        self.block = (shape[-2], shape[-1])

    def _put(self, plane: int, top: int, left: int, pixels: np.ndarray) -> None:
        finest = self._levels[0]
        place = place_of(plane, finest.shape)
        if self._order:
            found = np.unravel_index(plane, self.head.shape)
            place = tuple(int(found[axis]) for axis in self._order)
        with self._writing():
            finest[(*place, slice(top, top + pixels.shape[0]), slice(left, left + pixels.shape[1]))] = pixels[..., 0]

    def _finish(self) -> None:
        with self._writing():
            for finer, coarser in zip(self._levels, self._levels[1:]):
                _average(finer, coarser)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Damage to copied metadata that shows only in writing is told of the store that was read."""
        with ExitStack() as stack:
            stack.enter_context(_quiet())
            if self._private is not None:
                stack.enter_context(reasons(self._private.path, NAME, others=(OSError,)))
            yield


def refusal(head: Head) -> str | None:
    """Why Zarr cannot hold such a picture, or None."""
    if head.colour or head.has_alpha:
        return f"OME-Zarr holds grey planes, but the picture is {head.layout}"
    if head.dtype.name not in _DTYPES:
        return f"OME-Zarr holds integers and floats, but the pixels are {head.dtype}"
    if NAME not in head.meta.private and zarr_meta.new_axes(head.axes) is None:
        return f"OME-Zarr has axes t, c, z, but the picture has {head.axes}"
    return None


def place_of(plane: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Where a plane is along the leading axes of an array."""
    return tuple(int(at) for at in np.unravel_index(plane, shape[:-2])) if len(shape) > 2 else ()


def _cuts(places: range, step: int) -> list[int]:
    """Where places begin, where they end, and each multiple of a step between."""
    return [places.start, *range(places.start // step * step + step, places.stop, step), places.stop]


def _new_store(folder: Path, head: Head, order: list[int], name: str) -> list[Any]:
    """An image of version 0.4, which most programs read, with levels down to a small one."""
    import zarr
    from numcodecs.zstd import Zstd

    named = zarr_meta.new_axes(head.axes) or ""
    leading, shape = "".join(named[axis] for axis in order), tuple(head.shape[axis] for axis in order)
    sizes = [head.size]
    while max(sizes[-1]) > _SMALLEST:
        sizes.append((max(1, sizes[-1][0] // 2), max(1, sizes[-1][1] // 2)))
    root = zarr.open_group(folder, mode="a", zarr_format=2)
    root.attrs.update(zarr_meta.new_attributes(leading + "yx", len(sizes), name, head.meta.resolution))
    chunk = (*(1 for _ in leading), min(_CHUNK, head.size[0]), min(_CHUNK, head.size[1]))
    how: Any = {
        "chunks": chunk,
        "chunk_key_encoding": {"name": "v2", "separator": "/"},
        "compressors": Zstd(checksum=True),  # else a bit that turns in it may go unseen
    }
    return [
        root.create_array(str(level), shape=(*shape, *size), dtype=head.dtype, **how)
        for level, size in enumerate(sizes)
    ]


def _copied_store(folder: Path, private: Private, head: Head) -> list[Path]:
    """Copy a store without the pixels of the image; gives the folders of its levels."""
    source, meta = private.path, head.meta
    if not zarr_meta.is_store(source):
        raise FileError(source, "is gone, and with it the other parts of the image", "Restore it.")
    levels = [source / level for level in private.image.levels]
    left_out: set[Path] = set()  # folders of chunks
    for entry in zarr_meta.contents(source):
        path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
        if path.parent in left_out or (path.parent in levels and path.name not in FILES):
            left_out |= {path} if is_folder else set()
        elif is_folder:
            (folder / path.relative_to(source)).mkdir()
        elif meta.scale == 1 or path.name != ".zmetadata":
            shutil.copy2(path, folder / path.relative_to(source), follow_symlinks=False)
    if meta.scale != 1:
        _scale_store(folder, private.image, head)
    return [folder / level for level in private.image.levels]


def _scale_store(folder: Path, image: Multiscale, head: Head) -> None:
    """Change sizes and coordinates in the metadata files."""
    scale, centred = head.meta.scale, head.meta.centred
    for path, key in ((folder / ".zattrs", None), (folder / "zarr.json", "attributes")):
        if path.is_file():
            found = zarr_meta.read_json(path)
            found.pop("consolidated_metadata", None)
            if key is None:
                found = zarr_meta.scaled(found, scale, centred=centred)
            elif key in found:
                found[key] = zarr_meta.scaled(found[key], scale, centred=centred)
            _write_json(path, found)
    for number, level in enumerate(image.levels):
        path = next(path for name in ("zarr.json", ".zarray") if (path := folder / level / name).is_file())
        found = zarr_meta.read_json(path)
        sides = [round(side * scale) for side in found["shape"][-2:]] if number else head.size
        found["shape"] = [*found["shape"][:-2], *sides]
        _write_json(path, found)


def _write_json(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(found, indent=4, ensure_ascii=False), encoding="utf-8")


def _average(finer: Any, coarser: Any) -> None:
    """Fill a level with the means of the next finer one's pixels, some chunks at a time."""
    edges = [_edges(many, few) for many, few in zip(finer.shape, coarser.shape)]
    unit = (coarser.shards or coarser.chunks)[-2:]
    steps = [side * max(1, _CHUNK // side) for side in unit]
    starts = [range(0, side, step) for side, step in zip(coarser.shape[-2:], steps)]
    for place in np.ndindex(*coarser.shape[:-2]):
        planes = [slice(edges[axis][at], edges[axis][at + 1]) for axis, at in enumerate(place)]
        for top, left in itertools.product(*starts):
            down, across = edges[-2][top : top + steps[0] + 1], edges[-1][left : left + steps[1] + 1]
            block = finer[(*planes, slice(down[0], down[-1]), slice(across[0], across[-1]))]
            means = np.asarray(block, np.float64).mean(axis=tuple(range(len(planes))))
            for axis, bounds in enumerate((down - down[0], across - across[0])):
                means = np.add.reduceat(means, bounds[:-1], axis=axis)
                means /= np.expand_dims(np.diff(bounds), 1 - axis)
            whole = np.rint(means) if np.dtype(coarser.dtype).kind in "iu" else means
            place_of_block = (*place, slice(top, top + len(down) - 1), slice(left, left + len(across) - 1))
            coarser[place_of_block] = whole.astype(coarser.dtype)


def _edges(many: int, few: int) -> np.ndarray:
    """Where `few` groups of neighbours among `many` begin, and where the last one ends: all of one size if possible."""
    size = max(1, round(many / few))
    if size * (few - 1) < many <= size * few or many // size == few:
        return np.minimum(np.arange(few + 1) * size, many)
    return np.arange(few + 1) * many // few


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """zarr warns of what future versions may do; what matters is raised by this module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
