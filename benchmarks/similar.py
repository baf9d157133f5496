"""Finding similar patches and filtering them together: `slir.similar` against the straightforward way.

    python benchmarks/similar.py [threads]

Prints, for a 321×481 image and the settings of `slir.views.Similar`, the time of `match` and of `collaborate` over
that of one strided `avg_pool2d` an offset and of all groups filtered at once, measured in turn; and the seconds that
they take.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from slir.similar import collaborate, match

SIZE, RADIUS, STRIDE, COUNT = 6, 16, 3, 48


def plain_match(pilot: Tensor) -> Tensor:
    """An offset at a time. Neither the references flush with the border nor the candidates beyond it are looked after,
    so it does a little less than `match`."""
    height, width = pilot.shape
    padded = F.pad(pilot, (RADIUS,) * 4)
    distances = []
    for row in range(2 * RADIUS + 1):
        for col in range(2 * RADIUS + 1):
            apart = (padded[row : row + height, col : col + width] - pilot).square()
            distances.append(F.avg_pool2d(apart[None, None], SIZE, STRIDE).flatten())
    return torch.stack(distances, 1).topk(COUNT, largest=False).indices


def plain_collaborate(noisy: Tensor, pilot: Tensor, groups: Tensor, variance: float) -> Tensor:
    """All groups at once."""
    height, width = noisy.shape
    places = groups // width * (width - SIZE + 1) + groups % width
    y, x = (image.unfold(0, SIZE, 1).unfold(1, SIZE, 1).reshape(-1, SIZE**2)[places] for image in (noisy, pilot))
    mean = y.mean(1, keepdim=True)
    x = x - x.mean(1, keepdim=True)
    covariance = x.mT @ x / COUNT
    gain = torch.linalg.solve(covariance + variance * torch.eye(SIZE**2), covariance)
    weight = 1 / (1 + gain.diagonal(dim1=1, dim2=2).sum(1))[:, None, None]
    patches = weight * (mean + (y - mean) @ gain)
    sums = []
    for values in (patches, weight.expand_as(patches)):
        at_places = noisy.new_zeros((height - SIZE + 1) * (width - SIZE + 1), SIZE**2)
        at_places.index_add_(0, places.flatten(), values.reshape(-1, SIZE**2))
        sums.append(F.fold(at_places.T[None], (height, width), SIZE)[0, 0])
    return sums[0] / sums[1]


def seconds(call: Callable[[], Tensor]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    if len(sys.argv) > 1:
        torch.set_num_threads(int(sys.argv[1]))
    generator = torch.Generator().manual_seed(0)
    pilot = torch.rand(321, 481, generator=generator)
    noisy = pilot + 0.1 * torch.randn(321, 481, generator=generator)
    find = partial(match, size=SIZE, radius=RADIUS, stride=STRIDE, count=COUNT)
    filtered = partial(collaborate, size=SIZE)
    groups, _ = find(pilot)
    ours, plain = (way(noisy, pilot, groups, 0.01) for way in (filtered, plain_collaborate))
    assert torch.allclose(ours, plain, rtol=0, atol=1e-4)
    pairs: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
        "match": (lambda: find(pilot)[0], lambda: plain_match(pilot)),
        "collaborate": (
            lambda: filtered(noisy, pilot, groups, 0.01),
            lambda: plain_collaborate(noisy, pilot, groups, 0.01),
        ),
    }
    print(f"{torch.get_num_threads()} threads     ours/plain   seconds")
    for name, (fast, slow) in pairs.items():
        times = torch.tensor([(seconds(fast), seconds(slow)) for _ in range(9)]).median(0).values
        print(f"{name:12s} {times[0] / times[1]:11.2f} {times[0]:9.3f}")


if __name__ == "__main__":
    main()
