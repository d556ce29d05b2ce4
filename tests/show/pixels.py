"""Draws axes without a screen."""

import matplotlib
import numpy as np

matplotlib.use("Agg")


def drawn(axes):
    """`[height, width, 4]` pixels of the figure, which is closed."""
    axes.figure.canvas.draw()
    image = np.asarray(axes.figure.canvas.buffer_rgba())
    matplotlib.pyplot.close(axes.figure)
    return image
