"""The learnt kernel: a network of features φ, learnt once, and the stage of the loop that uses it."""
