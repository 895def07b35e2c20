"""Small trainings for the tests of hypergradients."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

DOUBLE = torch.float64


@contextlib.contextmanager
def in_double():
    """float64 by default."""
    torch.set_default_dtype(DOUBLE)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def data(n=20, features=3):
    return torch.randn(n, features), torch.randn(n, 1)


def squared(model, batch, hyper):
    x, y = batch
    return hyper.get("weight", 1.0) * (model(x) - y).square().mean()


def small_net():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def noisy_net():
    return nn.Sequential(nn.Linear(3, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1))


def on(x, y):
    return lambda model, hyper: (model(x) - y).square().mean()


def difference(loss, hyper_values, name, index=None, eps=1e-6):
    """A central difference of the loss in one hyperparameter."""

    def at(sign):
        changed = {key: torch.as_tensor(value, dtype=DOUBLE).clone() for key, value in hyper_values.items()}
        changed[name].view(-1)[index or 0] += sign * eps
        return loss(changed)

    return (at(1) - at(-1)) / (2 * eps)
