"""napari's layers <-> arrays: planes, masks and kernels out of them, and where results lie."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Layer, Shapes

from napari_slir.requests import Index, Planes
from slir.errors import InputError

if TYPE_CHECKING:
    from napari.utils import Colormap

SEEN = 0.999
"""Share of the pixels whose expected errors the colours tell apart; beyond it they stay as they are."""


def pixels_of(layer: Layer) -> Any:
    """The array of a layer; of several resolutions the finest."""
    return layer.data[0] if getattr(layer, "multiscale", False) else layer.data


def planes_of(layer: Image, *, only_at: Any = None) -> Planes:
    """What a layer holds. only_at: a place in the world, for the one plane that is shown there."""
    pixels = pixels_of(layer)
    if only_at is None:
        return Planes(pixels, layer.rgb)
    place = np.rint(layer.world_to_data(only_at)[:-2]).astype(int)
    within = [min(max(own, 0), length - 1) for own, length in zip(place.tolist(), pixels.shape)]
    return Planes(pixels, layer.rgb, tuple(range(own, own + 1) for own in within))


def kernel_of(layer: Image | None, *, bead: bool) -> np.ndarray:
    """The PSF that a layer holds: as it is, or as the image of a bead or a star shows it."""
    import slir

    if layer is None:
        raise InputError("psf", "be in a layer", "none", "Open the kernel as a layer and choose it.")
    pixels = np.asarray(pixels_of(layer)).squeeze()
    if layer.rgb or pixels.ndim != 2:
        found = f"{layer.name!r}, of shape {pixels.shape}"
        raise InputError("psf", "be one grey plane", found, "Choose a layer with two axes.")
    return slir.psf.from_image(pixels) if bead else slir.psf.from_array(pixels)


def missing_in(mask: Layer, image: Image, planes: Planes) -> np.ndarray:
    """Which pixels of an image a layer of labels, shapes or pixels that are not 0 covers, as one sees it in the viewer.

    (H, W), or for a mask with more axes (…, H, W) with the planes of the image.
    """
    of_plane = _drawn if isinstance(mask, Shapes) else _sampled
    if mask.ndim == 2 or image.ndim == 2:
        return of_plane(mask, image, planes.sides, (0,) * (image.ndim - 2))
    shape = tuple(pixels_of(image).shape[: image.ndim])
    missing = np.zeros(shape, bool)
    for at in product(*planes.lead):
        missing[at] = of_plane(mask, image, planes.sides, at)
    return missing


def _sampled(mask: Layer, image: Image, sides: tuple[int, int], at: Index) -> np.ndarray:
    """The pixel of the mask that lies at each of the image's, wherever the two layers were moved or scaled to."""

    def there(row: int, col: int) -> np.ndarray:
        return np.asarray(mask.world_to_data(image.data_to_world((*at, row, col))))

    pixels, first = pixels_of(mask), there(0, 0)
    down, right = ((there(*step) - first)[:, None, None] for step in ((1, 0), (0, 1)))
    rows, cols = np.arange(sides[0])[None, :, None], np.arange(sides[1])[None, None, :]
    places = np.rint(first[:, None, None] + rows * down + cols * right).astype(int)
    lengths = np.array(pixels.shape[: mask.ndim])[:, None, None]
    inside = ((places >= 0) & (places < lengths)).all(0)
    missing = np.zeros(sides, bool)
    missing[inside] = np.asarray(pixels)[tuple(places[:, inside])] != 0
    return missing


def _drawn(mask: Shapes, image: Image, sides: tuple[int, int], at: Index) -> np.ndarray:
    """The pixels inside of shapes; those with a place on further axes count on their plane alone."""
    outlines, kinds = [], []
    for corners, kind in zip(mask.data, mask.shape_type):
        there = np.array([image.world_to_data(mask.data_to_world(corner)) for corner in corners])
        if mask.ndim == 2 or image.ndim == 2 or (np.rint(there[0, :-2]) == at).all():
            outlines.append(there[:, -2:])
            kinds.append(kind)
    if not outlines:
        return np.zeros(sides, bool)
    return Shapes(outlines, shape_type=kinds).to_labels(sides) > 0


def placed(layer: Image, *, factor: int, planes: Planes) -> dict[str, Any]:
    """Where a result lies, as arguments of a layer: on its input, to a fraction of a pixel.

    A pixel becomes factor × factor finer ones inside of it, so the first of these is centred before it.
    """
    shift = 0.5 / factor - 0.5
    corner = (*(axis.start for axis in planes.lead), shift, shift)
    scale = np.array(layer.scale, dtype=float)
    scale[-2:] /= factor
    return {
        "scale": scale,
        "translate": layer.affine.inverse(layer.data_to_world(corner)),
        "rotate": layer.rotate,
        "shear": layer.shear,
        "affine": layer.affine,
        "units": layer.units,
        "axis_labels": layer.axis_labels,
    }


def drawn_alike(layer: Image) -> dict[str, Any]:
    """How the input is drawn, so that before and after compare."""
    if layer.rgb:
        return {"rgb": True}
    return {"colormap": layer.colormap, "contrast_limits": layer.contrast_limits, "gamma": layer.gamma}


def error_drawn(error: np.ndarray) -> dict[str, Any]:
    """How an error map is drawn: from none to what nearly all pixels stay below, in the colours of slir's pictures."""
    high = float(np.quantile(error, SEEN))
    return {"rgb": False, "colormap": error_colours(), "contrast_limits": (0.0, high if high > 0 else 1.0)}


@lru_cache(maxsize=1)
def error_colours() -> Colormap:
    from napari.utils import Colormap

    from slir.pictures import heatmap

    colours = heatmap(np.linspace(0, 1, 256)[None])[0] / 255
    return Colormap(colours, name="slir-error", display_name="expected error")


def pixel_at(layer: Image, position: Any) -> Index | None:
    """Which pixel of a layer lies at a place in the world, (…, row, col); None beyond its edges."""
    place = np.rint(layer.world_to_data(position)).astype(int)
    lengths = pixels_of(layer).shape[: layer.ndim]
    if any(not 0 <= own < length for own, length in zip(place, lengths)):
        return None
    return tuple(place.tolist())


def pixel_size(layer: Layer) -> float | None:
    """What a pixel shows of the object in nanometres, where the layer's units say so."""
    unit = layer.units[-1]
    if not unit.is_compatible_with("nm"):
        return None
    from pint import get_application_registry

    return float((layer.scale[-1] * get_application_registry().Quantity(1, unit)).to("nm").magnitude)
