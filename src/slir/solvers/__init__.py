"""Solvers of the x-update (conjugate gradient) and of the z-update (one file each)."""
