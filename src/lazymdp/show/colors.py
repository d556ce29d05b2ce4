"""The colours of the project: *control* is orange and *lazy* is gray, in every picture and page."""

from matplotlib.colors import LinearSegmentedColormap

CONTROL = "#e8710a"
LAZY = "#b9bcc1"
WALL = "#3d4148"
WATER = "#9cc3de"
FLOOR = "#f4f1ea"
BRIDGE = "#dec49e"
INK = "#202124"
FAINT = "#5f6368"
"""Between ink and lazy: a third curve, and what is only marked."""

CONTROL_SCALE = LinearSegmentedColormap.from_list("control", ["#fff3e0", "#f7a14a", "#9a3b00"])
"""From little to much; steadily darker, so that it also reads in gray."""
