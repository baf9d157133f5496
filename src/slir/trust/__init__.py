"""How sure, and why: expected errors, intervals that hold the truth as often as they say, the examples behind a pixel,
and whether y = Bx + ε can be true."""
