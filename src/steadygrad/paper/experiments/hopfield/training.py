"""How the experiment's networks learn: `sg.models.hopfield` has the loop; here are the methods that the paper compares."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from steadygrad.models.hopfield import Hopfield
from steadygrad.models.hopfield.learning import Learning, Pass, Readout, Schedule, objective, pixels, settle

HopfieldMethod = Literal["bptt", "tbptt", "rbp-uniform", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto"]

__all__ = ["HopfieldMethod", "Learning", "Pass", "Readout", "Schedule", "cotangent", "objective", "pixels", "settle"]


def cotangent(model: Hopfield, h: Tensor, images: Tensor, readout: Readout) -> Tensor:
    """‖∂L/∂h‖ of each image: the right-hand side b of the adjoint equation, against which the start z₀ of RBP must be held."""
    leaf = h.detach().requires_grad_()
    (grad,) = torch.autograd.grad(objective(model, leaf, images, readout), leaf)
    return grad.norm(dim=1)
