"""Pictures to try: those of `slir serve`, spoilt in ways that the widget can mend."""

from __future__ import annotations

from typing import Any

LayerData = tuple[Any, dict[str, Any], str]


def noisy() -> list[LayerData]:
    """White noise of 20 grey levels: Denoise."""
    return _sample("noisy")


def shaken() -> list[LayerData]:
    """Moved by 9 pixels towards 30 degrees, noise of 2.55: Deblur, Motion."""
    return _sample("shaken")


def unfocused() -> list[LayerData]:
    """A disk of 2.5 pixels' radius, noise of 2.55: Deblur, Defocus."""
    return _sample("unfocused")


def small() -> list[LayerData]:
    """Half its size: Enlarge."""
    return _sample("small")


def scratched() -> list[LayerData]:
    """With its scratches as labels: Inpaint."""
    return _sample("scratched")


def _sample(name: str) -> list[LayerData]:
    from slir.web.examples import EXAMPLES

    example = EXAMPLES[name]
    pixels, mask = example.made()
    layers: list[LayerData] = [(pixels, {"name": example.title, "rgb": True}, "image")]
    if mask is not None:
        layers.append((mask.astype("uint8"), {"name": "Scratches"}, "labels"))
    return layers
