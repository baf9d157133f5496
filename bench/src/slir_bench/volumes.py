"""Simulated volumes of fluorescence: beads, filaments and cells, blurred and counted in photons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from scipy.signal import fftconvolve

VOXEL = (200.0, 100.0, 100.0)
"""Nanometres (z, y, x)."""


@dataclass(frozen=True)
class Volume:
    """truth: the light of each voxel in photons. y: photons counted. psf: what blurred it, and more beyond y."""

    truth: np.ndarray
    y: np.ndarray
    psf: np.ndarray


def simulated(kind: str, psf: np.ndarray, shape: tuple[int, ...], photons: float, seed: int) -> Volume:
    """A volume that goes on beyond what is seen. photons: mean count of the brightest voxel of y."""
    rng = np.random.default_rng(seed)
    x = KINDS[kind](tuple(side + own - 1 for side, own in zip(shape, psf.shape)), rng)
    light = fftconvolve(x / x.max(), psf, "valid").clip(0)
    gain = photons / light.max()
    before = [own - 1 - (own - 1) // 2 for own in psf.shape]
    inner = tuple(slice(start, start + side) for start, side in zip(before, shape))
    return Volume(gain * x[inner] / x.max(), rng.poisson(gain * light).astype(np.float64), psf)


def beads(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Balls with radii from 80 to 400 nm, of different brightness."""
    x = np.zeros(shape)
    grid = np.indices(shape)
    for _ in range(max(6, int(np.prod(shape) / 9000))):
        radius, bright = rng.uniform(80, 400), rng.uniform(0.3, 1)
        x = np.maximum(x, bright * np.clip((radius - _distance(grid, _place(shape, rng))) / VOXEL[2] + 0.5, 0, 1))
    return x


def filaments(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Threads that wind, mostly within the planes."""
    points = np.concatenate([_thread(shape, rng) for _ in range(max(6, int(np.prod(shape) / 16000)))])
    edges = [np.arange(side + 1) - 0.5 for side in shape]
    drawn, _ = np.histogramdd(points[:, :3], edges, weights=points[:, 3])
    x = ndimage.gaussian_filter(drawn, [70 / step for step in VOXEL])
    usual = np.percentile(x[x > 0.1 * x.max()], 80)
    return np.clip(x / usual, 0, 1.5)


def cells(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Membranes around dim cytoplasm and textured nuclei, 1 to 2 µm across."""
    fine, coarse = (_texture(shape, width, rng) for width in (120, 400))
    grid, x = np.indices(shape), np.zeros(shape)
    for _ in range(max(4, int(np.prod(shape) * np.prod(VOXEL) / 2500**3))):
        radius, squeeze = rng.uniform(500, 1100), rng.uniform(0.7, 1.2, 3)
        away = _distance(grid, _place(shape, rng), squeeze) + 60 * coarse
        inside = np.where(away < 0.5 * radius, 0.3 * (1 + 0.6 * fine), 0.1 * (1 + 0.5 * fine)).clip(0)
        membrane = 0.8 * np.exp(-(((away - radius) / 80) ** 2))
        own = np.maximum(np.where(away < radius, inside, 0), membrane)
        x = np.where((away < radius) | (membrane > 0.04), own, x)
    return x.clip(0, 1)


KINDS: dict[str, Callable[[tuple[int, ...], np.random.Generator], np.ndarray]] = {
    "beads": beads,
    "filaments": filaments,
    "cells": cells,
}


def _place(shape: tuple[int, ...], rng: np.random.Generator) -> list[float]:
    return [rng.uniform(0, side) for side in shape]


def _distance(grid: np.ndarray, place: list[float], squeeze: np.ndarray | None = None) -> np.ndarray:
    """Nanometres from a place, along axes that may be squeezed."""
    steps = VOXEL if squeeze is None else np.array(VOXEL) / squeeze
    return np.sqrt(sum(((axis - at) * step) ** 2 for axis, at, step in zip(grid, place, steps)))


def _texture(shape: tuple[int, ...], width: float, rng: np.random.Generator) -> np.ndarray:
    smooth = ndimage.gaussian_filter(rng.normal(size=shape), [width / step for step in VOXEL])
    return smooth / smooth.std()


def _thread(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Points (z, y, x, brightness), 10 nm apart, both ways from a place."""
    flat = np.array([0.4, 1, 1])
    start, first, bright = _place(shape, rng), rng.normal(size=3) * flat, rng.uniform(0.4, 1)
    halves = []
    for sign in (1, -1):
        turns = np.cumsum(rng.normal(size=(1800, 3)) * 0.035 * flat, axis=0) + sign * first / np.linalg.norm(first)
        ways = turns / np.linalg.norm(turns, axis=1, keepdims=True)
        halves.append(np.array(start) + np.cumsum(10 * ways / np.array(VOXEL), axis=0))
    points = np.concatenate(halves)
    return np.concatenate([points, np.full((len(points), 1), bright)], axis=1)
