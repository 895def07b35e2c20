"""Families from machine learning, optimisation, games and graphs."""

from __future__ import annotations

import torch
from drawing import Draw, Family, ring_with_chord
from torch import Tensor
from torch.nn import functional


def pagerank(draw: Draw) -> Family:
    """PageRank with nodes that link nowhere, whose rank goes to everybody."""
    n, alpha = draw.size + 2, draw.choice([0.5, 0.85, 0.99, 0.999])
    links = (draw.uniform(n, n) < 0.3).double() * draw.uniform(n, n, low=0.1)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        out = p[0].sum(1, keepdim=True)
        P = torch.where(out > 0, p[0] / out.clamp(min=1e-12), torch.full_like(p[0], 1 / n))
        return alpha * (h @ P) + (1 - alpha) * torch.softmax(p[1], -1)

    return Family(update, [links, draw.normal(n)], torch.full((draw.rows, n), 1 / n, dtype=torch.float64))


def relu_net(draw: Draw) -> Family:
    """A Hopfield net with rectified units: kinks, and dead units."""
    n = draw.size
    W = draw.normal(n, n)
    W = draw.number(0.2, 1.1) * W / torch.linalg.matrix_norm(W, 2)
    return Family(lambda h, p: torch.relu(h @ p[0].mT + p[1]), [W, draw.normal(draw.rows, n)], draw.zeros(draw.rows, n))


def routing(draw: Draw) -> Family:
    """Drivers choose routes by softmax of what the others leave: h = softmax(−θ·(c + B h))."""
    n, theta = draw.size + 1, draw.log(0.1, 5.0)
    return Family(
        lambda h, p: torch.softmax(-theta * (p[0] + h @ p[1].mT), -1),
        [draw.uniform(draw.rows, n), draw.uniform(n, n)],
        torch.full((draw.rows, n), 1 / n, dtype=torch.float64),
    )


def sinkhorn(draw: Draw) -> Family:
    """Sinkhorn's potential of optimal transport, its free constant fixed by a mean of zero."""
    n, eps = draw.size + 1, draw.log(0.05, 1.0)
    a, b = torch.softmax(draw.normal(n), 0), torch.softmax(draw.normal(n), 0)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        g = eps * (p[1].log() - torch.logsumexp((h.unsqueeze(-1) - p[2]) / eps, -2))
        f = eps * (p[0].log() - torch.logsumexp((g.unsqueeze(-2) - p[2]) / eps, -1))
        return f - f.mean(-1, keepdim=True)

    return Family(update, [a, b, draw.uniform(n, n)], draw.zeros(draw.rows, n))


def value_iteration(draw: Draw) -> Family:
    """Bellman's equation with a hard maximum."""
    n, gamma = draw.size + 1, draw.choice([0.5, 0.9, 0.99, 0.995])
    P = torch.softmax(2 * draw.normal(3, n, n), -1)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        return (p[0].unsqueeze(1) + gamma * torch.einsum("ast,rt->ars", p[1], h)).amax(0)

    return Family(update, [draw.uniform(3, n), P], draw.zeros(draw.rows, n))


def cournot(draw: Draw) -> Family:
    """Firms that answer each other's supply: a Nash equilibrium by damped best responses, rectified smoothly."""
    n, sharp = draw.size + 1, draw.log(2.0, 50.0)
    answer = draw.number(0.05, 0.6)
    mix = torch.ones(n, n, dtype=torch.float64) - torch.eye(n, dtype=torch.float64)
    return Family(
        lambda h, p: (1 - answer) * h + answer * functional.softplus(p[0] - 0.5 * (h @ (mix.to(h) * p[1]).mT), beta=sharp),
        [draw.uniform(draw.rows, n, low=0.5, high=2.0), draw.uniform(n, n, low=0.2, high=1.0)],
        draw.zeros(draw.rows, n),
    )


def set_attention(draw: Draw) -> Family:
    """Elements of a set that attend to each other, written out: tanh(softmax(QKᵀ) V + x)."""
    n, d = draw.size + 1, 3
    size = draw.number(0.2, 1.5)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        weights = torch.softmax((h @ p[0]) @ (h @ p[1]).mT / d**0.5, -1)
        return torch.tanh(weights @ h @ p[2] + p[3])

    return Family(
        update,
        [draw.normal(d, d), draw.normal(d, d), size * draw.normal(d, d) / d, draw.normal(draw.rows, n, d)],
        draw.zeros(draw.rows, n, d),
    )


def convolution(draw: Draw) -> Family:
    """Two channels of a line, convolved, normalised in groups, rectified."""
    n = draw.size + 3

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        return functional.group_norm(functional.softplus(functional.conv1d(h, p[0], padding=1) + p[1]), 2, eps=1e-2) * p[2]

    return Family(
        update,
        [0.5 * draw.normal(4, 4, 3), draw.normal(draw.rows, 4, n), draw.uniform(1, low=0.1, high=0.9)],
        draw.zeros(draw.rows, 4, n),
    )


def gru(draw: Draw) -> Family:
    """A gated recurrent unit with a constant input."""
    n = draw.size
    size = draw.number(0.3, 1.5)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        r, u = torch.sigmoid(h @ p[0].mT + p[3]), torch.sigmoid(h @ p[1].mT - p[3])
        return u * h + (1 - u) * torch.tanh((r * h) @ p[2].mT + p[3])

    return Family(
        update, [*(size * draw.normal(n, n) / n**0.5 for _ in range(3)), draw.normal(draw.rows, n)], draw.zeros(draw.rows, n)
    )


def lstm(draw: Draw) -> Family:
    """A long short-term memory, h and c side by side, with a constant input."""
    n = draw.size
    size = draw.number(0.2, 1.0)

    def update(state: Tensor, p: list[Tensor]) -> Tensor:
        h, c = state[..., :n], state[..., n:]
        i, f, g, o = (h @ p[0].mT + p[1]).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.cat([torch.sigmoid(o) * torch.tanh(c), c], -1)

    return Family(update, [size * draw.normal(4 * n, n) / n**0.5, draw.normal(draw.rows, 4 * n)], draw.zeros(draw.rows, 2 * n))


def transformer(draw: Draw) -> Family:
    """A weight-tied block: attention, then a hidden layer, both normalised, the input added."""
    n, d = min(draw.size, 4) + 1, 4

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        a = functional.layer_norm(h + torch.softmax(h @ p[0] @ h.mT / 2, -1) @ h @ p[1], (d,), eps=1e-3)
        return functional.layer_norm(p[3] + 0.5 * a + 0.3 * torch.tanh(a @ p[2]), (d,), eps=1e-3)

    return Family(
        update,
        [0.3 * draw.normal(d, d), 0.3 * draw.normal(d, d), draw.normal(d, d), 2 * draw.normal(draw.rows, n, d)],
        draw.normal(draw.rows, n, d),
    )


def mixture(draw: Draw) -> Family:
    """Expectation–maximisation of the means of two Gaussians: slow where they overlap."""
    apart = draw.number(0.8, 4.0)
    data = torch.cat([draw.normal(20) - apart / 2, draw.normal(20) + apart / 2])

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        weights = torch.softmax(-(p[0].unsqueeze(1) - h.unsqueeze(-2)).square() / 2, -1)
        return (weights * p[0].unsqueeze(1)).sum(-2) / weights.sum(-2)

    return Family(update, [data], torch.tensor([[-1.0, 1.0]], dtype=torch.float64).repeat(draw.rows, 1))


def belief_propagation(draw: Draw) -> Family:
    """Messages of an Ising model on a ring with a chord: u_ij = atanh(tanh J_ij · tanh(x_i + Σ u_ki))."""
    n, strength = draw.size + 3, draw.number(0.2, 1.2)
    source, arrives = ring_with_chord(n)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        field = p[0][..., source] + h @ arrives.to(h).mT
        return torch.atanh(torch.tanh(torch.cat([p[1], p[1]])) * torch.tanh(field) * 0.999999)

    return Family(
        update,
        [draw.log(1e-3, 1.0) * draw.normal(draw.rows, n), strength * draw.normal(len(source) // 2)],
        draw.zeros(draw.rows, len(source)),
    )


def soft_threshold(h: Tensor, by: Tensor) -> Tensor:
    return torch.sign(h) * torch.relu(h.abs() - by)


def ista(draw: Draw) -> Family:
    """Iterated shrinkage for the lasso; conditions up to 1e3."""
    n = draw.size + 1
    A = draw.normal(2 * n, n) @ torch.diag(torch.logspace(0, draw.number(-1.5, 0), n, dtype=torch.float64))
    step = draw.number(0.3, 1.0) / torch.linalg.matrix_norm(A, 2) ** 2
    weight = torch.tensor([draw.log(1e-3, 3.0)], dtype=torch.float64)
    return Family(
        lambda h, p: soft_threshold(h - step.to(h) * (h @ p[0].mT - p[1]) @ p[0], step.to(h) * p[2]),
        [A, draw.normal(draw.rows, 2 * n), weight],
        draw.zeros(draw.rows, n),
    )


def admm(draw: Draw) -> Family:
    """The alternating direction method for the lasso: z and the scaled dual u, side by side."""
    n, rho = draw.size, draw.log(0.1, 10.0)
    A = draw.normal(n + 2, n)

    def update(state: Tensor, p: list[Tensor]) -> Tensor:
        z, u = state[..., :n], state[..., n:]
        system = p[0].mT @ p[0] + rho * torch.eye(n, dtype=z.dtype)
        x = torch.linalg.solve(system, (p[1] @ p[0] + rho * (z - u)).mT).mT
        new = soft_threshold(x + u, p[2] / rho)
        return torch.cat([new, u + x - new], -1)

    return Family(
        update,
        [A, draw.normal(draw.rows, n + 2), torch.tensor([draw.log(1e-2, 1.0)], dtype=torch.float64)],
        draw.zeros(draw.rows, 2 * n),
    )


def mirror_descent(draw: Draw) -> Family:
    """Exponentiated gradients on the simplex, with an entropy that keeps the minimum inside."""
    n, step, tau = draw.size + 1, draw.log(1e-2, 0.5), draw.log(0.05, 1.0)
    A = draw.normal(n, n)
    A = A @ A.mT / n
    return Family(
        lambda h, p: torch.softmax(h.clamp(min=1e-30).log() - step * (h @ p[0] + p[1] + tau * h.clamp(min=1e-30).log()), -1),
        [A, draw.normal(draw.rows, n)],
        torch.full((draw.rows, n), 1 / n, dtype=torch.float64),
    )


def momentum(draw: Draw) -> Family:
    """Ridge regression by heavy-ball descent, weights and velocity side by side: the velocity rests at zero."""
    n, beta = draw.size, draw.choice([0.0, 0.5, 0.9])
    A = draw.normal(2 * n, n) / (2 * n) ** 0.5
    rate, ridge = draw.number(0.05, 0.4), torch.tensor([draw.log(1e-3, 1.0)], dtype=torch.float64)

    def update(state: Tensor, p: list[Tensor]) -> Tensor:
        w, v = state[..., :n], state[..., n:]
        v = beta * v - rate * ((w @ p[0].mT - p[1]) @ p[0] + p[2] * w)
        return torch.cat([w + v, v], -1)

    return Family(update, [A, draw.normal(draw.rows, 2 * n), ridge], draw.zeros(draw.rows, 2 * n))


def fictitious_play(draw: Draw) -> Family:
    """Two players of a zero-sum game who answer by softmax, damped: rotations around the equilibrium."""
    n, theta, answer = draw.size + 1, draw.log(0.3, 8.0), draw.number(0.05, 1.0)
    A = draw.normal(n, n)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        x, y = h[..., :n], h[..., n:]
        best = torch.cat([torch.softmax(theta * (y @ p[0].mT + p[1]), -1), torch.softmax(-theta * (x @ p[0]), -1)], -1)
        return (1 - answer) * h + answer * best

    return Family(update, [A, 0.1 * draw.normal(draw.rows, n)], torch.full((draw.rows, 2 * n), 1 / n, dtype=torch.float64))


LEARNING = [
    pagerank, relu_net, routing, sinkhorn, value_iteration, cournot, set_attention, convolution, gru, lstm, transformer, mixture,
    belief_propagation, ista, admm, mirror_descent, momentum, fictitious_play,
]  # fmt: skip
