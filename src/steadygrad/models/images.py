"""A classifier of images with one small convolutional cell at equilibrium."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

import steadygrad as sg


class ContractiveCell(nn.Module):
    """cell(x, h) = tanh(conv(h) + x): x is the encoded image, which stays; h the state.

    No row of the convolution's operator may sum to more than `bound`, in absolute values: F contracts by that in the largest
    norm, whatever is learned. So there is one steady state, ρ(J) ≤ bound, and the Neumann series converges.

    >>> cell = ContractiveCell(channels=2)
    >>> layer = sg.Equilibrium(cell, initial=torch.zeros_like)
    >>> layer(torch.randn(5, 2, 6, 6)).shape
    torch.Size([5, 2, 6, 6])
    """

    def __init__(self, channels: int, bound: float = 0.9) -> None:
        super().__init__()
        if not 0 < bound < 1:
            raise ValueError(f"bound must lie between 0 and 1, for a contraction; got {bound}.")
        self.inner, self.bound = nn.Conv2d(channels, channels, 3, padding=1), bound

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        weight = self.inner.weight
        # By the larger of sum and bound: bound / sum has no gradient where a channel's weights are all zero.
        weight = weight * (self.bound / weight.abs().sum(dim=(1, 2, 3), keepdim=True).clamp(min=self.bound))
        return torch.tanh(conv2d(h, weight, self.inner.bias, padding=1) + x)


class EquilibriumClassifier(nn.Module):
    """Images (count, channels, height, width) to (count, classes) scores: encoded, brought to a steady state, read out.

    As deep as an image needs, in the memory of one step. `layer.solution` is the last solve, `layer.solution.adjoint` the
    certificate of the last backward pass. The images' sides must divide by four.

    >>> model = EquilibriumClassifier((1, 8, 8), classes=3)
    >>> loss = torch.nn.functional.cross_entropy(model(torch.randn(5, 1, 8, 8)), torch.tensor([0, 1, 2, 0, 1]))
    >>> loss.backward()
    >>> model.layer.solution.adjoint.converged
    True
    """

    def __init__(
        self,
        shape: Sequence[int] = (1, 28, 28),
        classes: int = 10,
        *,
        channels: int = 8,
        bound: float = 0.9,
        search: sg.Picard = sg.Picard(max_steps=60, rtol=1e-4),
        gradient: str | sg.Implicit = "auto",
    ) -> None:
        super().__init__()
        colours, height, width = self.shape = tuple(shape)
        if height % 4 or width % 4:
            raise ValueError(f"the sides of an image must divide by four; got {height} × {width}: pad it, as nn.ZeroPad2d does.")
        self.encode = nn.Conv2d(colours, channels, 5, stride=2, padding=2)
        self.layer = sg.Equilibrium(ContractiveCell(channels, bound), initial=torch.zeros_like, forward=search, gradient=gradient)
        self.decode = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(channels * (height // 4) * (width // 4), classes))

    def forward(self, images: Tensor) -> Tensor:
        """Scores; their softmax are probabilities."""
        if images.shape[1:] != self.shape:
            raise ValueError(f"images must have shape (count, {', '.join(map(str, self.shape))}); got {tuple(images.shape)}.")
        return self.decode(self.layer(self.encode(images)))
