"""Where our records are not as the paper or its code, and what that does."""

from __future__ import annotations

from steadygrad.paper.report.fidelity import beside, ranged
from steadygrad.paper.report.hyperopt.m1 import meta_end
from steadygrad.paper.report.hyperopt.m2 import training_end
from steadygrad.paper.report.hyperopt.trials import training_steps
from steadygrad.paper.report.trial import WHOLE

__all__ = ["WHOLE", "beside", "meta_end", "ranged", "training_end", "training_steps"]  # for the template
