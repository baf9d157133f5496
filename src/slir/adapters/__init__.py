"""slir in the tools that people already use, one small file and one extra each. Nothing here is imported by the rest.

deepinv.py   slir as a reconstructor and a denoiser of deepinv, operators as physics     slir[deepinv]
physics.py   any linear physics of deepinv as an operator                                slir[deepinv]
scipy.py     operators <-> SciPy's and PyLops' linear operators                          slir[pylops] for PyLops
sklearn.py   regressors and a restorer by scikit-learn's conventions                     slir[sklearn]
planes.py    what these share: the planes of one image through the engine
"""
