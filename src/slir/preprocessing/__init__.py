"""Users' arrays <-> planes in [0, 1], and what is decided about them before the loop: range, noise, colours."""
