"""The learnt kernel as it ships: one network for every task, and how its errors were calibrated for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slir.kernel.network import KernelNetwork
from slir.kernel.noise_level import NoiseNetwork
from slir.kernel.stage import STAGES, stages
from slir.model import Model
from slir.trust.examples import Examples
from slir.trust.record import Trust

CALIBRATED = dict.fromkeys(("deblur", "upsample2", "upsample3", "upsample4", "inpaint"), STAGES) | {"denoise": 1}
"""Stages by the name under which errors are calibrated (`Operator.calibration`)."""


@dataclass(frozen=True)
class LearntKernel:
    """A network with the calibrated errors of each task.

    trust: by the name of the calibration. examples: patches of its training pictures, for explanations. provenance:
    how it was learnt, as JSON. noise: what tells the noise of a picture.
    """

    network: KernelNetwork
    trust: dict[str, Trust] = field(default_factory=dict)
    examples: Examples | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    noise: NoiseNetwork | None = None

    def model(self, name: str) -> Model:
        """The estimator for operators of a calibration: one stage where B is the identity, several elsewhere."""
        chain = stages(self.network, CALIBRATED.get(name, STAGES))
        return Model(chain, self.provenance, trust=self.trust.get(name), examples=self.examples)
