"""Families from physics, chemistry and engineering: updates whose steady states people look for."""

from __future__ import annotations

import torch
from drawing import Draw, Family
from torch import Tensor


def kepler(draw: Draw) -> Family:
    """E = M + e·sin E: the eccentric anomaly of a planet."""
    e = draw.uniform(draw.rows, 1, low=0.05, high=0.98)
    return Family(
        lambda h, p: p[1] + p[0] * torch.sin(h), [e, draw.uniform(draw.rows, 1, low=0.1, high=3.0)], draw.zeros(draw.rows, 1)
    )


def michaelis_menten(draw: Draw) -> Family:
    """A chain of enzymes: dh_i/dt = inflow_i + v_{i−1} − v_i with v = V·h / (K + h)."""
    n, dt = draw.size, draw.log(1e-2, 0.5)
    top, half, inflow = (
        draw.uniform(n, low=2.0, high=4.0),
        draw.uniform(n, low=0.3, high=3.0),
        draw.uniform(n, low=0.1, high=0.9) / n,
    )

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        flow = p[0] * h / (p[1] + h)
        arriving = torch.cat([torch.zeros_like(flow[..., :1]), flow[..., :-1]], dim=-1)
        return h + dt * (p[2] + arriving - flow)

    return Family(update, [top, half, inflow], draw.ones(draw.rows, n))


def ricker(draw: Draw) -> Family:
    """Species that compete, h ← h·exp(dt·(r − A h)): the coexistence of Lotka and Volterra."""
    n, dt = draw.size, draw.log(1e-2, 0.6)
    A = torch.eye(n, dtype=torch.float64) + draw.uniform(n, n, low=0.0, high=0.7 / n)
    return Family(
        lambda h, p: h * torch.exp(dt * (p[0] - h @ p[1].mT)), [draw.uniform(n, low=0.8, high=1.2), A], draw.ones(draw.rows, n)
    )


def jacobi_heat(draw: Draw) -> Family:
    """One Jacobi sweep of −u″ + c·u = f between walls of given temperature."""
    n, c = draw.size + 2, draw.log(1e-4, 1.0)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        left = torch.cat([p[1][..., :1].expand_as(h[..., :1]), h[..., :-1]], dim=-1)
        right = torch.cat([h[..., 1:], p[1][..., 1:].expand_as(h[..., :1])], dim=-1)
        return (left + right + p[0]) / (2 + c)

    return Family(update, [draw.normal(draw.rows, n), draw.normal(2)], draw.zeros(draw.rows, n))


def successive_overrelaxation(draw: Draw) -> Family:
    """Sweeps of SOR on a diffusion matrix, ω anywhere up to its limit of 2."""
    n, omega = min(draw.size, 6) + 1, draw.number(0.3, 1.97)
    A = (
        2.02 * torch.eye(n, dtype=torch.float64)
        - torch.diag(torch.ones(n - 1, dtype=torch.float64), 1)
        - torch.diag(torch.ones(n - 1, dtype=torch.float64), -1)
    )

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        columns = list(h.unbind(-1))
        for i in range(n):
            others = sum(p[1][i, j] * columns[j] for j in range(n) if j != i)
            columns[i] = (1 - omega) * columns[i] + omega * (p[0][..., i] - others) / p[1][i, i]
        return torch.stack(columns, dim=-1)

    return Family(update, [draw.normal(draw.rows, n), A], draw.zeros(draw.rows, n))


def poisson_boltzmann(draw: Draw) -> Family:
    """u″ = κ²·sinh u − ρ, relaxed: (2 + κ²) u ← neighbours + ρ + κ²·(u − sinh u)."""
    n, kappa = draw.size + 1, draw.log(1e-3, 1.0)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        beside = torch.nn.functional.pad(h, (1, 1))
        return (beside[..., 2:] + beside[..., :-2] + p[0] + p[1] * (h - torch.sinh(h.clamp(-20, 20)))) / (2 + p[1])

    return Family(update, [0.3 * draw.normal(draw.rows, n), torch.tensor([kappa], dtype=torch.float64)], draw.zeros(draw.rows, n))


def load_flow(draw: Draw) -> Family:
    """Voltages of a grid, V_i ← (S_i / V_i + Σ y_ij V_j + y_i0) / Σ y: Gauss's load flow without phases."""
    n = draw.size
    y = draw.uniform(n, n, low=0.0, high=1.0)
    y = (y + y.mT) * (1 - torch.eye(n, dtype=torch.float64))
    ground = draw.uniform(n, low=0.1, high=1.0)
    power = draw.uniform(draw.rows, n, low=-0.1, high=0.05) * ground.min()
    return Family(
        lambda h, p: (p[0] / h + h @ p[1].mT + p[2]) / (p[1].sum(1) + p[2]), [power, y, ground], draw.ones(draw.rows, n)
    )


def mean_field(draw: Draw) -> Family:
    """Mean-field Ising magnetisation, h = tanh(β·A h + x), near its critical temperature."""
    n = draw.size
    A = draw.uniform(n, n)
    A = (A + A.mT) / 2
    A = A / torch.linalg.matrix_norm(A, 2)
    beta = torch.tensor([draw.choice([0.5, 0.9, 0.99, 0.999, 1.0, 1.01, 1.2, 2.0])], dtype=torch.float64)
    return Family(
        lambda h, p: torch.tanh(p[1] * (h @ p[0].mT) + p[2]),
        [A, beta, draw.log(1e-6, 1.0) * draw.normal(draw.rows, n)],
        draw.uniform(draw.rows, n),
    )


def epidemic(draw: Draw) -> Family:
    """Endemic state of an infection near its threshold, h = 1 − exp(−R·A h)."""
    n = draw.size
    A = draw.uniform(n, n)
    A = A / torch.linalg.eigvals(A).abs().max()
    r = torch.tensor([draw.choice([0.8, 1.02, 1.1, 1.5, 4.0])], dtype=torch.float64)
    return Family(lambda h, p: 1 - torch.exp(-p[0] * (h @ p[1].mT)), [r, A], draw.uniform(draw.rows, n, low=0.2, high=1.0))


def erlang(draw: Draw) -> Family:
    """Erlang's blocking probabilities of links that share routes: the reduced-load fixed point."""
    n, load = draw.size, draw.number(0.3, 3.0)
    routes = (draw.uniform(2 * n, n) < 0.4).double()
    traffic = draw.uniform(2 * n, low=0.2, high=load)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        passing = torch.exp(torch.log1p(-h.clamp(max=0.999)) @ routes.to(h).mT)
        offered = (p[0] * passing) @ routes.to(h) / (1 - h.clamp(max=0.999))
        blocked = torch.ones_like(offered)
        for servers in range(1, 4):
            blocked = offered * blocked / (servers + offered * blocked)
        return blocked

    return Family(update, [traffic], draw.uniform(draw.rows, n, high=0.1))


def colebrook(draw: Draw) -> Family:
    """Friction of a pipe, 1/√f = −2·log10(ε/3.7 + 2.51/(Re·√f)), for h = 1/√f."""
    roughness, reynolds = draw.uniform(draw.rows, 1, low=1e-6, high=5e-2), 10 ** draw.uniform(draw.rows, 1, low=3.6, high=8.0)
    return Family(lambda h, p: -2 * torch.log10(p[0] / 3.7 + 2.51 * h / p[1]), [roughness, reynolds], draw.ones(draw.rows, 1))


def power_control(draw: Draw) -> Family:
    """Transmit powers that just reach a signal-to-noise ratio: h = γ·(G h + noise), powers of any unit."""
    n, gamma = draw.size, draw.choice([0.3, 0.9, 0.99])
    G = draw.uniform(n, n) * (1 - torch.eye(n, dtype=torch.float64))
    G = gamma * G / torch.linalg.eigvals(G).abs().max().clamp(min=1e-3)
    return Family(lambda h, p: h @ p[0].mT + p[1], [G, draw.log(1e-9, 1e3) * draw.uniform(n, low=0.5)], draw.zeros(draw.rows, n))


def kuramoto(draw: Draw) -> Family:
    """Phases of coupled oscillators that have locked, relative to the first."""
    n, coupling = draw.size + 1, draw.log(0.5, 3.0)
    frequencies = 0.3 * draw.normal(draw.rows, n)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        pull = torch.sin(h.unsqueeze(-2) - h.unsqueeze(-1)).mean(-1)
        speed = p[0] - p[0].mean(-1, keepdim=True) + p[1] * pull
        new = h + 0.3 * speed
        return new - new.mean(-1, keepdim=True)

    return Family(update, [frequencies, torch.tensor([coupling], dtype=torch.float64)], draw.zeros(draw.rows, n))


def two_timescales(draw: Draw) -> Family:
    """A fast half that follows a slow half, tanh on top: rates 0.1 and 1 − 10⁻ᵏ."""
    n, slow = draw.size, 1 - draw.log(1e-5, 1e-1)
    A = 0.3 * draw.normal(n, n) / n**0.5

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        fast, lazy = h[..., :n], h[..., n:]
        return torch.cat([torch.tanh(fast @ p[0].mT + lazy), slow * lazy + (1 - slow) * torch.tanh(p[1] + 0.2 * fast)], dim=-1)

    return Family(update, [A, draw.normal(draw.rows, n)], draw.zeros(draw.rows, 2 * n))


PHYSICS = [
    kepler, michaelis_menten, ricker, jacobi_heat, successive_overrelaxation, poisson_boltzmann, load_flow, mean_field, epidemic,
    erlang, colebrook, power_control, kuramoto, two_timescales,
]  # fmt: skip
