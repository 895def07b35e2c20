"""Smooth maps for the surfaces: what people put into a layer, at any state, in one tensor or nested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from drawing import Draw
from torch import Tensor
from torch.nn import functional

Flat = Callable[[Tensor, list[Tensor]], Tensor]


@dataclass
class Map:
    """F(h, p) on a state (rows, …), or without rows, and how it is handed over."""

    name: str
    update: Flat
    parameters: list[Tensor]
    start: Tensor
    rows: int = 0
    """Independent problems, the first dimension; 0 for one problem without such a dimension."""
    parts: str = "tensor"
    """How the last dimension is nested: "tensor", "dict", "tuple", "deep"."""

    def nested(self, p: list[Tensor]) -> tuple[Callable[[Tensor], Any], Callable[..., Any]]:
        """The nesting of a state, and F on nested states."""
        cut = self.start.shape[-1] // 2

        def part(h: Tensor) -> Any:
            if self.parts == "tensor":
                return h
            a, b = h[..., :cut], h[..., cut:]
            return {"tuple": (a, b), "dict": {"z": a, "a": b}, "deep": {"x": [a, (b,)]}}[self.parts]

        return part, lambda h: part(self.update(self.joined(h), p))

    def joined(self, h: Any) -> Tensor:
        if self.parts == "tensor":
            return h
        if self.parts == "deep":
            return torch.cat([h["x"][0], h["x"][1][0]], -1)
        return torch.cat(list(h) if self.parts == "tuple" else [h["z"], h["a"]], -1)

    def jacobians(self, h: Tensor, p: list[Tensor]) -> list[Tensor]:
        """J of each problem, differentiable, by autograd row by row on the image alone."""

        def image(v: Tensor) -> Tensor:
            return self.update(v.view(h.shape), p).reshape(-1)

        J = torch.autograd.functional.jacobian(image, h.reshape(-1), create_graph=True)
        rows = self.rows or 1
        size = h.numel() // rows
        return [J[i * size : (i + 1) * size, i * size : (i + 1) * size] for i in range(rows)]


def dense_net(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """One layer with a smooth activation."""
    act = draw.choice([torch.tanh, torch.sigmoid, functional.softplus, functional.gelu, functional.silu, torch.sin, torch.atan])
    return lambda h, p: act(h @ p[0].mT + p[1]), [draw.log(0.1, 3) * draw.normal(n, n) / n**0.5, draw.normal(n)]


def bottleneck(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """A residual block through a narrow layer: J of low rank beside a multiple of the identity."""
    k, keep = max(1, n // 3), draw.choice([0.0, 0.5, -0.5])
    return (
        lambda h, p: keep * h + torch.tanh(h @ p[0].mT) @ p[1].mT + p[2],
        [draw.normal(k, n), draw.log(0.1, 1.5) * draw.normal(n, k) / k, draw.normal(n)],
    )


def normalised(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """A layer norm, with weights, of a hidden layer."""
    eps = draw.choice([1e-5, 1e-2])
    return (
        lambda h, p: functional.layer_norm(torch.tanh(h @ p[0].mT) + p[1], (n,), p[2], p[3], eps),
        [draw.normal(n, n), draw.normal(n), 0.5 * draw.normal(n), draw.normal(n)],
    )


def attention(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """Fused attention over the numbers of a state, each an element of a set with two features."""

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        x = torch.stack([h, torch.cos(h)], -1) @ p[0]
        found = functional.scaled_dot_product_attention(x @ p[1], x, x @ p[2])
        return found.sum(-1) + p[3]

    return update, [draw.normal(2, 4), draw.normal(4, 4), 0.3 * draw.normal(4, 4), draw.normal(n)]


def gated(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """A gate that mixes the old state with a candidate."""

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        u = torch.sigmoid(h @ p[0].mT + p[2])
        return u * h + (1 - u) * torch.tanh(h @ p[1].mT - p[2])

    return update, [draw.normal(n, n), draw.log(0.2, 2) * draw.normal(n, n) / n**0.5, draw.normal(n)]


def spectral_filter(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """A filter in Fourier space, then a saturation."""

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        return torch.tanh(torch.fft.irfft(torch.fft.rfft(h) * p[0], n=n) + p[1])

    return update, [draw.log(0.2, 2) * draw.normal(n // 2 + 1), draw.normal(n)]


def convolved(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """A circular convolution, normalised in groups."""

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        x = functional.pad(h.reshape(-1, 1, n), (1, 1), mode="circular")
        y = functional.group_norm(functional.conv1d(x, p[0]), 2, eps=1e-2)
        return (torch.tanh(y).mean(1) * p[1] + p[2]).reshape(h.shape)

    return update, [draw.normal(4, 1, 3), draw.normal(1), draw.normal(n)]


def solved_inside(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """A linear system inside F: a proximal step."""

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        A = p[0] @ p[0].mT + torch.eye(n, dtype=h.dtype)
        return torch.linalg.solve(A, (torch.sin(h) + p[1]).unsqueeze(-1)).squeeze(-1)

    return update, [draw.normal(n, n), draw.normal(n)]


def sparse_product(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """Neighbours of a graph summed by index_add."""
    edges = torch.randint(0, n, (2, 2 * n), generator=torch.Generator().manual_seed(draw.whole(0, 10**6)))

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        summed = torch.zeros_like(h).index_add(-1, edges[1], h[..., edges[0]] * p[0])
        return torch.tanh(summed + p[1])

    return update, [0.5 * draw.normal(2 * n), draw.normal(n)]


def nowhere(draw: Draw, n: int) -> tuple[Flat, list[Tensor]]:
    """A part of the state does not depend on h at all, and a parameter is not used by J."""
    k = n // 2
    return (
        lambda h, p: torch.cat([p[1].expand(*h.shape[:-1], k), torch.tanh(h[..., k:] * p[0] + h[..., :1])], -1),
        [draw.normal(n - k), draw.normal(k)],
    )


MAPS = [
    dense_net, bottleneck, normalised, attention, gated, spectral_filter, convolved, solved_inside, sparse_product, nowhere,
]  # fmt: skip


def drawn_map(draw: Draw, largest: int = 9) -> Map:
    """A map at a random state, with or without rows, nested or not."""
    make = draw.choice(MAPS)
    n = draw.whole(2, largest)
    rows = draw.choice([0, 0, 1, 2, 4])
    update, parameters = make(draw, n)
    start = draw.normal(rows, n) if rows else draw.normal(n)
    return Map(make.__name__, update, parameters, start, rows, draw.choice(["tensor", "tensor", "dict", "tuple", "deep"]))
