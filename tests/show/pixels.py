"""Draws axes without a screen."""

import matplotlib
import numpy as np

matplotlib.use("Agg")


def drawn(axes):
    """Returns the pixels of a figure, `[height, width, 4]`, and closes it."""
    axes.figure.canvas.draw()
    image = np.asarray(axes.figure.canvas.buffer_rgba())
    matplotlib.pyplot.close(axes.figure)
    return image
