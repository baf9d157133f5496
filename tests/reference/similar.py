"""Similar patches, slowly and obviously: NumPy, float64, one pair of patches and one group at a time."""

from __future__ import annotations

import numpy as np

from reference.patches import corners


def patch(image: np.ndarray, corner: tuple[int, int], size: int) -> np.ndarray:
    return image[corner[0] : corner[0] + size, corner[1] : corner[1] + size]


def distance(image: np.ndarray, a: tuple[int, int], b: tuple[int, int], size: int) -> float:
    return float(((patch(image, a, size) - patch(image, b, size)) ** 2).sum())


def match(
    image: np.ndarray, size: int, radius: int, stride: int, count: int
) -> list[list[tuple[float, tuple[int, int]]]]:
    """For each reference: (distance, corner) of its group, itself first, then the others by distance, in turn."""
    groups = []
    for reference in corners(image.shape, size, stride):
        others = []
        for corner in corners(image.shape, size, 1):
            if corner != reference and max(abs(corner[0] - reference[0]), abs(corner[1] - reference[1])) <= radius:
                others.append((distance(image, reference, corner, size), corner))
        candidates = [(0.0, reference), *sorted(others)]
        groups.append([candidates[i % len(candidates)] for i in range(count)])
    return groups


def collaborate(
    noisy: np.ndarray,
    pilot: np.ndarray,
    groups: list[list[tuple[int, int]]],
    variance: float,
    size: int,
    shares: np.ndarray | None = None,
) -> np.ndarray:
    """shares: how much each member of each group counts."""
    total, weights = np.zeros(noisy.shape), np.zeros(noisy.shape)
    shares = np.ones((len(groups), len(groups[0]))) if shares is None else shares
    for group, share in zip(groups, shares):
        seen, known = (np.stack([patch(image, corner, size).flatten() for corner in group]) for image in (noisy, pilot))
        covariance = np.cov(known, rowvar=False, bias=True, aweights=share).reshape(size**2, size**2)
        gain = np.linalg.solve(covariance + variance * np.eye(size**2), covariance)  # symmetric, as the two commute
        weight = 1 / (1 + np.trace(gain))
        mean = np.average(seen, axis=0, weights=share)
        for corner, values, own in zip(group, seen, share):
            filtered = mean + gain @ (values - mean)
            patch(total, corner, size)[:] += own * weight * filtered.reshape(size, size)
            patch(weights, corner, size)[:] += own * weight
    return np.where(weights > 0, total / np.where(weights > 0, weights, 1), pilot)


def spread(
    pilot: np.ndarray,
    groups: list[list[tuple[int, int]]],
    variance: float,
    size: int,
    shares: np.ndarray | None = None,
) -> np.ndarray:
    """The variance of x given y in the groups' Gaussians, C − C(C + σ²I)⁻¹C, of each pixel."""
    total, weights = np.zeros(pilot.shape), np.zeros(pilot.shape)
    shares = np.ones((len(groups), len(groups[0]))) if shares is None else shares
    for group, share in zip(groups, shares):
        known = np.stack([patch(pilot, corner, size).flatten() for corner in group])
        covariance = np.cov(known, rowvar=False, bias=True, aweights=share).reshape(size**2, size**2)
        gain = np.linalg.solve(covariance + variance * np.eye(size**2), covariance)
        left = np.diag(covariance - covariance @ gain).reshape(size, size)
        weight = 1 / (1 + np.trace(gain))
        for corner, own in zip(group, share):
            patch(total, corner, size)[:] += own * weight * left
            patch(weights, corner, size)[:] += own * weight
    return np.where(weights > 0, total / np.where(weights > 0, weights, 1), variance)
