"""q of a model from the patches that it holds, where the images that it was learnt from are not at hand."""

from __future__ import annotations

import numpy as np
import torch

from slir.errors import InputError
from slir.model import Prior
from slir.theory.correlation import Correlation, kernel_of, mean_within, pool


@torch.no_grad()
def prior_correlation(prior: Prior, *, centres: int = 2048) -> Correlation:
    """q among the patches of a bank, seen through its own kernel.

    A bank is a sample of the patches of n ≥ 2 images and says where each was taken, so pairs within an image and pairs
    between images can be told apart. |P| is taken from the places that were sampled, which span nearly the whole image
    where the bank is large.

    centres: how many patches of each image are used, at most.
    """
    bank, kernel = prior.bank, kernel_of(prior)
    features = prior.fitted.features
    drawn, within, counts = [], [], []
    for image in bank.source[:, 0].unique():
        mine = (bank.source[:, 0] == image).nonzero()[:, 0]
        places = bank.source[mine, 1:]
        # Draws are with replacement; a patch that came twice would count as two that are alike.
        _, group = torch.unique(places, dim=0, return_inverse=True)
        mine = mine[_firsts(group)][:centres]
        if len(mine) < 2:
            continue
        whole = int(torch.prod(places.amax(0) - places.amin(0) + 1))
        some, numbers = features[mine.to(features.device)], torch.arange(len(mine))
        within.append(mean_within(kernel, some, some, numbers, numbers, whole=max(whole, len(mine) + 1)))
        counts.append(whole)
        drawn.append(some)
    if len(drawn) < 2:
        remedy = "Pass images to measure q on."
        raise InputError("the bank", "hold patches of at least two images", f"of {len(drawn)}", remedy)
    return pool(kernel, drawn, np.array(within), np.array(counts, dtype=float))


def _firsts(group: torch.Tensor) -> torch.Tensor:
    """Where each number of `group` stands first, in order."""
    order = torch.argsort(group, stable=True)
    new = torch.ones(len(group), dtype=torch.bool)
    new[1:] = group[order][1:] != group[order][:-1]
    return order[new].sort().values
