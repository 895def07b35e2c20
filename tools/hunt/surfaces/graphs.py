"""batch_index=: graphs batched as one are solved, stopped and certified as each of them by itself."""

from __future__ import annotations

import torch
from drawing import Draw
from torch import Tensor

import steadygrad as sg
from surfaces.outcome import Outcome


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    graphs, width = draw.whole(1, 5), draw.whole(1, 3)
    counts = [draw.whole(1, 6) for _ in range(graphs)]
    nodes = sum(counts)
    index = torch.repeat_interleave(torch.arange(graphs), torch.tensor(counts))
    if draw.happens(0.5):
        index = index[torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))]
    same = (index[:, None] == index[None, :]).double()
    A = same * draw.uniform(nodes, nodes) * (draw.uniform(nodes, nodes) < 0.6)
    A = A / A.sum(1, keepdim=True).clamp(min=1e-9)
    gains = draw.uniform(graphs, low=-0.99, high=0.99)
    if draw.happens(0.2):
        gains[draw.whole(0, graphs - 1)] = 1.5  # one graph that has no contraction
    units = torch.exp(draw.choice([0.0, 3.0]) * draw.normal(graphs))
    x = draw.normal(nodes, width)
    dtype = draw.choice([torch.float32, torch.float64])
    gradient = draw.choice(["auto", "auto", "gmres", "lsqr", "cg-rbp", "bicgstab", "rbp", "anderson", "dense"])
    forward = draw.choice([sg.Picard(max_steps=3000), sg.Anderson(max_steps=300), sg.Broyden(), sg.Newton()])
    nested = draw.happens(0.3)
    outcome = Outcome(f"graphs {gradient} {forward} {dtype} nested {nested}", facts={"counts": counts, "gains": gains.tolist()})
    smooth = draw.happens(0.5)

    def update(h: Tensor, p: list[Tensor]) -> Tensor:
        own = units.to(h)[index].unsqueeze(1)
        inner = p[0][index].unsqueeze(1) * ((A.to(h) @ (h / own)) + p[1])
        return own * (torch.tanh(inner) if smooth else inner)

    given = [t.to(dtype, copy=True).requires_grad_() for t in (gains, x)]
    b = draw.normal(nodes, width)
    with outcome.listening():
        start = torch.zeros(nodes, width, dtype=dtype)

        def called(h: object) -> object:
            return {"x": update(h["x"], given), "s": 0.5 * h["s"] + h["x"].sum(1)} if nested else update(h, given)  # type: ignore[index]

        solution = sg.steady_state(
            called, {"x": start, "s": start[:, 0]} if nested else start,
            batch_index=index, gradient=gradient, forward=forward, on_failure="ignore",
        )  # fmt: skip
        h = solution.value["x"] if nested else solution.value
        good = torch.as_tensor(solution.converged)
        weights = b / units[index].unsqueeze(1)
        grads = torch.autograd.grad((h * weights.to(dtype)).sum(), given)
    if outcome.said or solution.adjoint is None:
        return outcome
    good = good & torch.as_tensor(solution.adjoint.converged)
    true = [g.detach().double().requires_grad_() for g in given]
    v = torch.where(good[index].unsqueeze(1), h.detach().double(), 0.0)  # one that ran away would spoil the truth of all
    J = torch.autograd.functional.jacobian(
        lambda w: update(w.view(v.shape), [t.detach() for t in true]).reshape(-1), v.reshape(-1)
    )
    eye = torch.eye(v.numel(), dtype=torch.float64)
    end = v + torch.linalg.solve(eye - J, (update(v, true) - v).detach().reshape(-1)).view(v.shape)
    z = torch.linalg.solve(eye - J.mT, weights.reshape(-1)).view(v.shape)
    exact = torch.autograd.grad(update(v, true), true, z)
    for g in range(graphs):
        if good[g]:
            mine = index == g
            outcome.compare(f"state {g}", v[mine], end[mine], 0.02, least=1e-30)
            outcome.compare(f"x of {g}", grads[1][mine], exact[1][mine], 0.02, least=1e-30)
            scale = float((z * (update(v, true) / true[0].detach()[index].unsqueeze(1)).detach())[mine].abs().sum())
            outcome.compare(f"gain of {g}", grads[0][g], exact[0][g], 0.02, least=max(0.05 * scale, 1e-30))
        elif forward.__class__ is sg.Picard and abs(float(gains[g])) < 0.95 and gradient in ("auto", "gmres", "lsqr", "dense"):
            outcome.errors[f"alarm {g}"] = (1.0, 0.0)
    return outcome
