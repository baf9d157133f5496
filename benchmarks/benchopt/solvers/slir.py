"""slir as it ships: one learnt kernel for any PSF, mask and noise level."""

import torch
from benchopt import BaseSolver

from slir.estimator.loop import restore
from slir.kernel.shipped import default_model


class Solver(BaseSolver):
    name = "slir"
    sampling_strategy = "run_once"
    requirements = ["pip::slir"]

    def set_objective(self, y, operator, sigma):
        self.y, self.operator, self.sigma = torch.from_numpy(y), operator, sigma
        self.model = default_model(operator)

    def run(self, _):
        self.x = restore(self.y, self.operator, self.model, sigma=self.sigma).x

    def get_result(self):
        return {"x": self.x.numpy()}
