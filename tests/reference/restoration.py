"""The energies of the paper at tiny sizes, with R_p and B as dense matrices, and their exact minima."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference.patches import corners, selection


@dataclass
class Energy:
    """Σ_p Σ_i αᵢ(p) φ(‖C x_p − xⁱ‖) + γ/2 ‖y − Bx‖², x as a vector; C removes a patch's mean.

    operator: B. selections: R_p (P, k, H·W). alpha: (P, m). bank: centred xⁱ (m, k).
    """

    operator: np.ndarray
    y: np.ndarray
    selections: np.ndarray
    alpha: np.ndarray
    bank: np.ndarray
    gamma: float

    def data(self, x: np.ndarray) -> float:
        return self.gamma / 2 * float(np.sum((self.y - self.operator @ x) ** 2))

    def squared_to(self, x: np.ndarray, means: np.ndarray) -> float:
        """With φ(d) = d²/2 and each x_p compared with xⁱ + a mean that is given."""
        total = self.data(x)
        for select, weights, mean in zip(self.selections, self.alpha, means):
            for weight, patch in zip(weights, self.bank):
                total += weight * float(np.sum((select @ x - patch - mean) ** 2)) / 2
        return total

    def euclidean(self, x: np.ndarray) -> float:
        total = self.data(x)
        for select, weights in zip(self.selections, self.alpha):
            centred = select @ x - (select @ x).mean()
            total += float(weights @ np.linalg.norm(centred - self.bank, axis=1))
        return total

    def minimum_of_squared_to(self, means: np.ndarray) -> np.ndarray:
        """(γBᵀB + Σ_p Σαᵢ R_pᵀR_p) x = γBᵀy + Σ_p R_pᵀ Σᵢ αᵢ (xⁱ + mean_p)."""
        system = self.gamma * self.operator.T @ self.operator
        rhs = self.gamma * self.operator.T @ self.y
        for select, weights, mean in zip(self.selections, self.alpha, means):
            for weight, patch in zip(weights, self.bank):
                system = system + weight * select.T @ select
                rhs = rhs + weight * select.T @ (patch + mean)
        return np.linalg.solve(system, rhs)

    def minimum_of_squared(self, beta: float | None = None) -> np.ndarray:
        """With φ(d) = d²/2, the means left free.

        beta: minimise over x and z, the patches z_p tied to x_p by β/2‖z_p − x_p‖², as HQS does. Minimising over z
        first leaves the same energy in x with aβ/(a + β) in the place of a = Σᵢαᵢ (and of the αᵢ themselves).
        """
        k = self.bank.shape[1]
        centre = np.eye(k) - np.full((k, k), 1 / k)
        system = self.gamma * self.operator.T @ self.operator
        rhs = self.gamma * self.operator.T @ self.y
        for select, weights in zip(self.selections, self.alpha):
            share = 1.0 if beta is None else beta / (weights.sum() + beta)
            system = system + share * weights.sum() * select.T @ centre @ select
            rhs = rhs + share * select.T @ centre @ (weights @ self.bank)
        return np.linalg.solve(system, rhs)


def all_selections(shape: tuple[int, int], size: int, stride: int = 1) -> np.ndarray:
    return np.stack([selection(shape, size, corner) for corner in corners(shape, size, stride)])
