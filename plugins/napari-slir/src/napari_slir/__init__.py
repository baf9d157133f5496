"""slir in napari: restore a layer, see which error to expect, click on a pixel to see what it was made from.

    napari.yaml    what napari is told                      widget.py      the dock widget
    requests.py    one layer restored, plane by plane       form.py        its settings
    layers.py      napari's layers <-> arrays               explaining.py  what is known about a pixel
    samples.py     pictures to try                          working.py     work in another thread
    commands.py    entries of the Layers menu

Only widget.py, form.py, explaining.py and working.py know of Qt.
"""
