"""Sample efficiency: the number of steps that each form needs."""

import numpy as np

from lazymdp.experiments import samples
from lazymdp.experiments.experiment import table


def test_steps_needed_takes_the_best_step_size():
    errors = table(
        form=["augmented"] * 4,
        alpha=[0.1, 0.1, 1.0, 1.0],
        steps=[10.0, 40.0, 10.0, 20.0],
        error=[0.5, 0.01, 0.2, 0.02],
    )
    assert samples.steps_needed({"errors": errors}, "augmented", 0.02) == (20.0, 1.0)
    assert samples.steps_needed({"errors": errors}, "augmented", 0.01) == (40.0, 0.1)
    assert samples.steps_needed({"errors": errors}, "augmented", 0.001)[0] == np.inf
