"""Trainings to the same loss against BPTT, in seconds and peak memory; a convolutional layer against torchdeq, a step.

All ways of one row are trained in turns, a step each, from the same weights and with the same draws of dropout.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

import steadygrad as sg
from benchmarks import torchdeq_loops
from benchmarks.frame import Effort, Figures, Row, Rows, in_fresh_process, race, short
from steadygrad.peak_memory import peak_memory

WAYS: dict[str, Any] = {
    "BPTT": sg.BPTT(),
    "auto": sg.Implicit(sg.Auto(rtol=1e-4)),
    "auto, check=False": sg.Implicit(sg.Auto(rtol=1e-4), check=False),
}
TARGETS = {"cora": 0.2, "hopfield": 0.2}
"""The loss without dropout to train to, as a share of the loss at the start: tens of epochs, and some 20 passes."""
LOOK_EVERY = 3
"""Epochs between looks at the loss, which are not timed."""
MOST = {"cora": 100, "hopfield": 100}
RTOL = 1e-3
"""Both tolerances of the convolutional layer."""


def rows(effort: Effort) -> Rows:
    what = "the corrected network of the paper, trained in turns from the same weights until the loss has fallen to"
    for name, target in TARGETS.items():
        yield Row(
            name, f"{what} {target:.0%} of its start: seconds of training, peak of one step", partial(to_loss, effort, name)
        )
    for solver in ("fixed point", "Anderson"):
        what = f"one SGD step of a convolutional equilibrium layer (3×3, 16 channels) on 64 digits, {solver} both ways to 1e-3"
        yield Row(f"convolution, {solver}", f"{what}, each image by itself, float32", partial(convolution, effort, solver))


def to_loss(effort: Effort, name: str) -> Figures:
    """Seconds and steps until the loss is reached; the ways take turns step by step."""
    for way in WAYS:
        training(name, way, effort.tiny).step()  # what happens once only, such as reading the data, is for nobody's account
    trainings = {way: training(name, way, effort.tiny) for way in WAYS}
    goals = {way: TARGETS[name] * one.loss() for way, one in trainings.items()}
    seconds = dict.fromkeys(WAYS, 0.0)
    reached: dict[str, int | None] = dict.fromkeys(WAYS)
    losses: dict[str, float] = {}
    for epoch in range(1, effort.pick(MOST[name], 2) + 1):
        for way, one in trainings.items():
            if reached[way] is not None:
                continue
            torch.manual_seed(epoch)  # the same dropout for all
            started = time.perf_counter()
            one.step()
            seconds[way] += time.perf_counter() - started
            if epoch % LOOK_EVERY == 0:
                losses[way] = short(one.loss())
                if losses[way] <= goals[way]:
                    reached[way] = epoch
        if all(value is not None for value in reached.values()):
            break
    peaks = {way: in_fresh_process(peak_of_a_step, name, way, effort.tiny) for way in WAYS}
    return {
        "seconds": {way: short(value) for way, value in seconds.items()},
        "steps": reached,
        "loss": losses,
        "peak": peaks,
        "ratio": short(seconds["auto"] / seconds["BPTT"]),
        "memory_ratio": short(peaks["auto"] / peaks["BPTT"]),
    }


def training(name: str, way: str, small: bool) -> Any:
    from benchmarks import networks  # only here, since the experiments need more packages

    return networks.cora(WAYS[way], small) if name == "cora" else networks.hopfield(WAYS[way], MOST[name], small)


def peak_of_a_step(name: str, way: str, small: bool) -> int:
    """Bytes of tensors at the worst moment of the second step; run in a fresh process."""
    one = training(name, way, small)
    one.step()
    return peak_memory(one.step)


class Layer(nn.Module):
    """h ← tanh(w ∗ h + u ∗ x) with w scaled so that the map contracts; its steady state is pooled and read out linearly."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.inner = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.outer = nn.Conv2d(1, channels, 3, padding=1)
        self.out = nn.Linear(16 * channels, 10)
        with torch.no_grad():
            self.inner.weight.mul_(0.8 / operator_norm(self.inner.weight))

    def update(self, h: Tensor, u: Tensor) -> Tensor:
        return torch.tanh(self.inner(h) + u)

    def read(self, h: Tensor) -> Tensor:
        return self.out(nn.functional.adaptive_avg_pool2d(h, 4).flatten(1))


def operator_norm(weight: Tensor) -> float:
    """The largest gain of a convolution over all frequencies, on a 14×14 torus."""
    spectrum = torch.fft.fft2(pad(weight, (0, 11, 0, 11))).permute(2, 3, 0, 1)
    return float(torch.linalg.matrix_norm(spectrum, ord=2).max())


def convolution(effort: Effort, solver: str) -> Figures:
    """Seconds a step; every way has a copy of the layer and sees the same digits in the same order."""
    batch = effort.pick(64, 4)
    digits = sg.datasets.mnist()
    images = digits.images[: 8 * batch, ::2, ::2].float().unsqueeze(1) / 255
    batches = list(zip(images.split(batch), digits.labels[: 8 * batch].split(batch), strict=True))
    torch.manual_seed(0)
    layer = Layer()
    settlers: dict[str, Callable[[Layer, Tensor, Tensor], tuple[Tensor, int]]] = {}
    if torchdeq_loops.INSTALLED:
        settlers["torchdeq"] = by_torchdeq(solver)
    settlers["steadygrad"] = by_steadygrad(solver, batch_dims=1)
    settlers["steadygrad, check=False"] = by_steadygrad(solver, batch_dims=1, check=False)
    settlers["steadygrad, all images as one problem"] = by_steadygrad(solver, batch_dims=0)
    trainers = {name: Trainer(copy.deepcopy(layer), settle, batches) for name, settle in settlers.items()}
    times = race({name: trainer.step for name, trainer in trainers.items()}, effort)
    return {
        "times": times,
        "forward_steps": {name: trainer.evaluations / trainer.number for name, trainer in trainers.items()},
        "loss_of_first_steps": {name: short(trainer.losses[0]) for name, trainer in trainers.items()},
        "loss_of_last_steps": {name: short(trainer.losses[-1]) for name, trainer in trainers.items()},
    }


class Trainer:
    """SGD on batches that come round again and again."""

    def __init__(self, layer: Layer, settle: Callable[..., tuple[Tensor, int]], batches: list[tuple[Tensor, Tensor]]) -> None:
        self.layer, self.settle, self.batches = layer, settle, batches
        self.optimiser = torch.optim.SGD(layer.parameters(), lr=0.05)
        self.number = self.evaluations = 0
        self.losses: list[float] = []

    def step(self) -> None:
        x, labels = self.batches[self.number % len(self.batches)]
        u = self.layer.outer(x)
        h, steps = self.settle(self.layer, torch.zeros_like(u), u)
        loss = cross_entropy(self.layer.read(h), labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.number += 1
        self.evaluations += steps
        self.losses.append(loss.item())


def by_steadygrad(solver: str, batch_dims: int, check: bool = True) -> Callable[[Layer, Tensor, Tensor], tuple[Tensor, int]]:
    if solver == "Anderson":
        forward, adjoint = sg.Anderson(max_steps=200, rtol=RTOL), sg.Anderson(max_steps=200, rtol=RTOL)
    else:
        forward, adjoint = sg.Picard(max_steps=200, rtol=RTOL), sg.Picard(max_steps=200, rtol=RTOL)

    def settle(layer: Layer, start: Tensor, u: Tensor) -> tuple[Tensor, int]:
        gradient = sg.Implicit(adjoint, check=check)
        solution = sg.steady_state(
            layer.update, start, u, forward=forward, gradient=gradient, batch_dims=batch_dims, on_failure="ignore"
        )
        return solution.value, solution.steps

    return settle


def by_torchdeq(solver: str) -> Callable[[Layer, Tensor, Tensor], tuple[Tensor, int]]:
    from torchdeq import get_deq

    name = "anderson" if solver == "Anderson" else "fixed_point_iter"
    limits = {"f_max_iter": 200, "b_max_iter": 200, "f_tol": RTOL, "b_tol": RTOL, "f_stop_mode": "rel", "b_stop_mode": "rel"}
    deq = get_deq(ift=True, f_solver=name, b_solver=name, **limits)

    def settle(layer: Layer, start: Tensor, u: Tensor) -> tuple[Tensor, int]:
        found, info = deq(lambda h: layer.update(h, u), start)
        return found[-1], int(info["nstep"].max())

    return settle
