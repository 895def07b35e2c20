"""Penalties of a dense J by definition, the calls that reach them, and a smooth update, for the tests of penalties."""

import math

import pytest
import torch

from steadygrad import penalty

EYE = torch.eye(20, dtype=torch.float64)


def seeded_normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def normal_matrix(J):
    S = torch.eye(J.shape[-1], dtype=J.dtype) - J
    return S.mT @ S


# The penalties of a dense J, each written as its definition.
DENSE = {
    "column_l1": lambda J: (J.abs().sum(0) - 0.9).square().max(),
    "frobenius": lambda J: torch.linalg.matrix_norm(J).square() / len(J),
    "spectral": lambda J: torch.linalg.matrix_norm(J, 2),
    "gershgorin": lambda J: torch.relu(
        math.sqrt(len(J)) * torch.linalg.matrix_norm(normal_matrix(J) - torch.eye(len(J), dtype=J.dtype)) - 1
    ),
    "lanczos": lambda J: -torch.linalg.eigvalsh(normal_matrix(J))[0],
}
# And the calls that reach them to rounding.
EXACT = {
    "column_l1": penalty.column_l1,
    "frobenius": lambda *a, **k: penalty.frobenius(*a, samples=None, **k),
    "spectral": lambda *a, **k: penalty.spectral(*a, steps=300, **k),
    "gershgorin": penalty.gershgorin,
    "lanczos": lambda *a, **k: penalty.lanczos(*a, steps=40, **k),
}
NAMES = list(EXACT)
# One cheap call of each kind, for what has to hold of all.
CALLS = {
    **{name: EXACT[name] for name in ("column_l1", "frobenius", "gershgorin")},
    "spectral": penalty.spectral,
    "lanczos": penalty.lanczos,
    "lanczos fixed": lambda *a, **k: penalty.lanczos(*a, through=False, **k),
    "column_l1 drawn": lambda *a, **k: penalty.column_l1(*a, columns=2, **k),
    "column_l1 mean": lambda *a, **k: penalty.column_l1(*a, columns=2, over="mean", **k),
    "frobenius drawn": penalty.frobenius,
    "gershgorin drawn": lambda *a, **k: penalty.gershgorin(*a, samples=2, **k),
}
EVERY = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def nonlinear(W, x, h):
    """A smooth update whose J depends on W, x and h."""
    return torch.tanh(W @ h + x) * torch.cos(h)


def nonlinear_plain(W, x, h):
    return torch.tanh(W @ h + x)
