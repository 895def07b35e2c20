"""One driver for every iteration: what a solver says of itself, when to look, how it ended, which problems go on."""

from steadygrad.iteration.driver import drive
from steadygrad.iteration.goal import Goal
from steadygrad.iteration.run import Ended
from steadygrad.iteration.solver import Forecast, Iteration, several_of

__all__ = ["Ended", "Forecast", "Goal", "Iteration", "drive", "several_of"]
