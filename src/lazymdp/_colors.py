"""The one palette: *control* is orange and *lazy* is gray in every picture and page."""

CONTROL = "#e8710a"
LAZY = "#b9bcc1"
WALL = "#3d4148"
WATER = "#9cc3de"
FLOOR = "#f4f1ea"
BRIDGE = "#dec49e"
INK = "#202124"
FAINT = "#5f6368"
"""Between ink and lazy: for a third curve and for marks."""

CONTROL_STOPS = ("#fff3e0", "#f7a14a", "#9a3b00")
"""Colors of a scale from low to high; steadily darker, so that it also reads in grayscale."""
