"""The learnt kernel as it ships: one network for every task, and how its errors were calibrated for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slir.kernel.network import KernelNetwork
from slir.kernel.noise_level import NoiseNetwork
from slir.kernel.stage import STAGES, stages
from slir.model import Model
from slir.operators import ColourFilterArray, Diagonal, Downsample, Mask, Operator
from slir.trust.examples import Examples
from slir.trust.record import Trust

TASKS = ("denoise", "deblur", "upsample2", "upsample3", "upsample4", "inpaint")
"""Names under which errors are calibrated."""


def task_name(operator: Operator) -> str:
    """The task that undoes an operator. Any linear map is undone as a blur is."""
    if operator.observes_pixels:
        return "denoise"
    if isinstance(operator, Mask | ColourFilterArray | Diagonal):
        return "inpaint"
    if isinstance(operator, Downsample) and operator.factor > 1:
        return f"upsample{operator.factor}"
    return "deblur"


@dataclass(frozen=True)
class LearntKernel:
    """A network with the calibrated errors of each task.

    trust: by name of the task. examples: patches of its training pictures, for explanations. provenance: how it was
    learnt, as JSON. noise: what tells the noise of a picture.
    """

    network: KernelNetwork
    trust: dict[str, Trust] = field(default_factory=dict)
    examples: Examples | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    noise: NoiseNetwork | None = None

    def model(self, task: str) -> Model:
        """The estimator of a task: one stage where B is the identity, several elsewhere."""
        chain = stages(self.network, 1 if task == "denoise" else STAGES)
        return Model(chain, self.provenance, trust=self.trust.get(task), examples=self.examples)
