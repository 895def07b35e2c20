"""PageRank of 100,000 pages as a steady state: from the ranks seen, find out how they were made.

p ← d·P p + (1 − d)·v, P the sparse matrix of links, d the damping, v where a surfer goes who is bored: a
mixture of topics. The ranks of a few pages were seen; d and the mixture are found by gradient. ρ(J) = d: near
1 the plain series is slow, and "auto" goes over to a Krylov method.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

import steadygrad as sg

TOPICS = 6


def links(pages: int, each: int = 10) -> sg.SparseMatrix:
    """A web in which few pages get most of the links; each page's links share its rank."""
    popular = (pages * torch.rand(pages * each) ** 3).long()
    source = torch.arange(pages).repeat_interleave(each)
    shares = torch.full((pages * each,), 1 / each, dtype=torch.float64)
    return sg.SparseMatrix.of_entries(popular, source, shares, (pages, pages))


def ranks(P: sg.SparseMatrix, topics: Tensor, damping: Tensor, mixture: Tensor) -> sg.Solution:
    v = topics @ mixture
    forward = sg.Picard(max_steps=400, rtol=1e-8)
    return sg.steady_state(lambda p: damping * (P @ p) + (1 - damping) * v, v.detach(), forward=forward)


@dataclass
class Found:
    damping: list[float]
    mixture: Tensor
    true: Tensor
    loss: list[float]


def main(small: bool = False) -> Found:
    torch.manual_seed(0)
    pages, steps = (1000, 5) if small else (100_000, 80)
    P = links(pages)
    topics = torch.zeros(pages, TOPICS, dtype=torch.float64)
    topics[torch.arange(pages), torch.randint(TOPICS, (pages,))] = 1
    topics /= topics.sum(0)
    true = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.07, 0.03], dtype=torch.float64)
    seen = torch.randperm(pages)[: pages // 20]  # the ranks of one page in twenty are known
    observed = ranks(P, topics, torch.tensor(0.9, dtype=torch.float64), true).value[seen].log()

    logit = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)  # damping 0.5
    weights = torch.zeros(TOPICS, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logit, weights], lr=0.15)
    losses, dampings, solution, start = list[float](), list[float](), None, time.perf_counter()
    for _ in range(steps):
        solution = ranks(P, topics, logit.sigmoid(), weights.softmax(0))
        loss = (solution.value[seen].log() - observed).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        dampings.append(logit.sigmoid().item())
    assert solution is not None
    assert solution.adjoint is not None
    found = weights.detach().softmax(0)
    seconds = (time.perf_counter() - start) / steps
    print(f"{pages:,} pages, {seconds:.2f} s a step ({solution.steps} steps, {solution.adjoint.products} products); ", end="")
    print(f"damping {dampings[-1]:.3f} (true 0.9), mixture off by {float((found - true).abs().max()):.3f} at most")
    return Found(dampings, found, true, losses)


def draw(found: Found, path: str) -> None:
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(10, 3), layout="constrained")
    left.semilogy(found.loss, color="#0072B2")
    left.set(title="Error of the log ranks that were seen", xlabel="step", ylabel="mean square")
    middle.plot(found.damping, color="#D55E00")
    middle.axhline(0.9, color="#555555", linestyle=":")
    middle.set(title="Damping (dotted: true)", xlabel="step", ylabel="d = ρ(J)", ylim=(0.4, 1))
    width, look = 0.4, {"color": "#009E73", "hatch": "//", "label": "found"}
    right.bar([topic - width / 2 for topic in range(TOPICS)], found.true.tolist(), width, color="#999999", label="true")
    right.bar([topic + width / 2 for topic in range(TOPICS)], found.mixture.tolist(), width, **look)
    right.set(title="Where bored surfers go", xlabel="topic", ylabel="share")
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="1,000 pages")
