"""Compiled steps and products beside eager ones and dense algebra, for the tests of compile=True."""

import torch

from problems import tanh_problem
from steadygrad.state import Layout, leaves_of
from steadygrad.update import Update, program
from steadygrad.update.compiled import CompiledUpdate

CHUNK = (2,)  # short graphs are built fast
STEPS = 5  # two graphs and an eager step


def updates(F, h0, *args, batch_dims=0):
    layout = Layout.of(h0, batch_dims)
    return Update(F, args, layout), layout.flatten(leaves_of(h0))


def eager_steps(update, h, steps, damping=0.0):
    with torch.no_grad():
        for _ in range(steps):
            before, h = h, (1 - damping) * update(h) + damping * h
    return h, before


def eager_series(J, v, steps):
    """Σ_{k<steps} (Jᵀ)ᵏ v and the next term, by dense algebra; J is (problems, size, size)."""
    total = torch.zeros_like(v)
    for _ in range(steps):
        total = total + v
        v = torch.einsum("bi,bij->bj", v, J)
    return total, v


def advance(F, h0, *args, steps=STEPS, damping=0.0):
    update, flat = updates(F, h0, *args)
    return CompiledUpdate(update, CHUNK).advance(flat, steps, damping)[0]


def builds():
    return [trace.builds for each in program._programs.values() for trace in each.traces.values()]


def closure(dtype):
    F, _, _, h0 = tanh_problem(size=6, dtype=dtype)
    return F, h0, (), 0
