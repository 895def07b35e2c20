"""Input first or state first: signs that a cell was written for the other order."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

STATES = {"h", "hx", "z", "z0", "h0", "s", "state", "hidden", "hidden_state", "hiddens", "z_star", "latent"}
"""What people call a state."""
INPUTS = {"x", "u", "inp", "inputs", "input", "inject", "injection", "features"}
"""What people call an input."""


def refuse_swapped_names(cell: Callable[..., Any]) -> None:
    """Refuse a cell whose parameters are named in the order (state, input), such as torchdeq's f(z, x)."""
    names = _first_names(cell)
    if len(names) == 2 and names[0] in STATES and names[1] in INPUTS:
        raise TypeError(
            f"the cell takes ({names[0]}, {names[1]}), which looks like the state first, but Equilibrium calls cell(x, h): the "
            "input first, as torch's cells have it. Write Equilibrium(cell, state_first=True) for cell(h, x), or "
            "state_first=False if the names mislead."
        )


def _first_names(cell: Callable[..., Any]) -> list[str]:
    """The names of the first two positional parameters, in lower case; fewer where they are not known."""
    called = cell.forward if isinstance(cell, nn.Module) else cell
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # built-in functions may have no signature
        return []
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name.lower() for p in positional[:2]]


def wrong_shape(x: Any, h: Tensor, new: Tensor, called_as: str) -> str:
    """Words for a cell that returned another shape than that of its state, and for what looks like the wrong order."""
    words = f"{called_as} returned shape {tuple(new.shape)} for a state h of shape {tuple(h.shape)}"
    if isinstance(x, Tensor) and new.shape == x.shape:
        return (
            f"{words}: that is the shape of the input x, so the cell seems to take its arguments in the other order. "
            "Equilibrium calls cell(x, h), the input first; Equilibrium(cell, state_first=True) calls cell(h, x)."
        )
    return f"{words}; it must map a state to a state of the same shape. Mind the order: x is the input, h the state."
