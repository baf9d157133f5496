"""A BenchOpt benchmark of image restoration: y = Bx + ε with B and σ known; who comes closest to x, and how soon?

    benchopt run benchmarks/benchopt
    benchopt run benchmarks/benchopt -d "photograph[task=deblur]" -s slir -s tikhonov

A solver is given y (h, w), where the range is 1, the operator B (a `slir.operators.Operator`: forward, adjoint, shapes)
and sigma; it returns x on B's pixels. `slir.adapters.scipy.to_scipy` makes B a SciPy LinearOperator.
"""

import numpy as np
import torch
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "Image restoration"
    min_benchopt_version = "1.10"
    requirements = ["pip::slir[pylops]"]

    def set_data(self, y, x, operator, sigma):
        self.y, self.x, self.operator, self.sigma = y, x, operator, sigma

    def get_objective(self):
        return {"y": self.y, "operator": self.operator, "sigma": self.sigma}

    def evaluate_result(self, x):
        """Judged where y shows x: beyond its border nobody can know it. value: mean squared error."""
        made, truth = (
            self.operator.crop(torch.as_tensor(each, dtype=torch.float64), self.y.shape) for each in (x, self.x)
        )
        error = float((made - truth).square().mean())
        misfit = float(self.operator.residual(torch.as_tensor(self.y), torch.as_tensor(x).float()).square().mean())
        return {"value": error, "psnr": -10 * np.log10(max(error, 1e-30)), "misfit": misfit**0.5}

    def get_one_result(self):
        return {"x": np.zeros(self.x.shape, np.float32)}
