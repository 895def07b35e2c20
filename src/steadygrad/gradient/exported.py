"""A fixed number of steps as torch.export records them: F so many times, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steadygrad.fixedpoint import FixedPointSolver, Picard
from steadygrad.solution import SteadyStateError
from steadygrad.state import Layout, State


def exported_steps(
    update: Callable[..., State], args: tuple[Any, ...], layout: Layout, leaves: list[Tensor], forward: FixedPointSolver
) -> list[Tensor]:
    """The state after the steps of `Picard(max_steps=T, rtol=0)`, for torch.export: the graph has no room for decisions.

    Gradients are those of the steps, if somebody trains what was exported. F must not draw random numbers: export in eval mode.
    """
    if type(forward) is not Picard or not forward.counts:
        raise SteadyStateError(
            f"torch.export records a fixed number of steps, and {forward!r} stops when it is there: give "
            "forward=Picard(max_steps=T, rtol=0), with as many steps as solution.steps shows to be enough."
        )
    for _ in range(forward.max_steps):
        images = layout.check(update(layout.nest(leaves), *args))
        if forward.damping:
            images = [torch.lerp(image, leaf, forward.damping) for image, leaf in zip(images, leaves, strict=True)]
        leaves = images
    return leaves
