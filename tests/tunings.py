"""A small tuning with a known answer."""

from __future__ import annotations

import torch
from torch import nn

from steadygrad import hyper

OUTER = lambda parameters: torch.optim.Adam(parameters, lr=0.3)  # noqa: E731


def ridge(rate=0.15):
    """w = 7 / (5 + decay) after training; the objective wants w = 1, so decay = 2."""
    x, y = torch.tensor([[1.0], [2.0]], dtype=torch.float64), torch.tensor([[1.0], [3.0]], dtype=torch.float64)
    model = nn.Linear(1, 1, bias=False).double()
    step = hyper.SGD(model, lambda model, batch, hyper: (model(x) - y).square().mean(), rate=rate)
    return step, lambda model, hyper: (model(x) - x).square().mean()


def tune(**changes):
    step, objective = ridge()
    options = {"batches": [None], "steps": 40, "meta_steps": 12, "outer": OUTER, "progress": False, **changes}
    return hyper.tune(options.pop("step", step), options.pop("hyper", {"decay": hyper.Log(0.1)}), objective, **options)
