"""A Hopfield memory of ten digits, and what it does to a damaged one, step by step."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache

import numpy
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from steadygrad.models import AssociativeMemory, corrupt
from steadygrad.paper.experiments.hopfield.data import digits

SIDE = 14
"""Digits are stored at half their size: learning them takes seconds, not minutes."""
HIDDEN, PASSES, RATE = 64, 60, 0.005
"""Learned in 3 to 4 s on one core, all ten stored well; with 100 passes, or 255 hidden neurons, the 8 comes back worse."""
INK = 0.15
"""Share of a stored pixel that must be drawn over for it to count as set."""


@dataclass(frozen=True)
class Retrieval:
    """The way of the network from a damaged image to rest."""

    shown: Tensor
    """(steps + 1, side, side): what the output neurons show, between 0 and 1"""
    energy: list[float]
    residual: list[float]
    """‖h_{t+1} − h_t‖ / ‖h_{t+1}‖"""
    nearest: int
    """The stored digit that is closest to what is shown at the end."""
    wrong: float
    """The share of pixels in which it differs from that digit."""


_learning = threading.Lock()


def memory() -> AssociativeMemory:
    """The memory, learned at the first call; calls meanwhile wait for it."""
    with _learning:
        return _learned()


@cache
def _learned() -> AssociativeMemory:
    found = AssociativeMemory((SIDE, SIDE), hidden=HIDDEN)
    found.store(digits(SIDE).view(10, SIDE, SIDE), passes=PASSES, rate=RATE)
    return found


def stored(digit: int) -> Tensor:
    """(side, side) zeros and ones."""
    return digits(SIDE)[digit % 10].view(SIDE, SIDE)


def damaged(image: Tensor, share: float, seed: int) -> Tensor:
    """The image with a share of its set pixels cleared."""
    return corrupt(image.reshape(1, -1), seed, min(max(share, 0.0), 1.0)).view(SIDE, SIDE)


def of_drawing(picture: numpy.ndarray | None) -> Tensor | None:
    """A drawing (height, width[, channels]), dark on light or with an alpha channel, as zeros and ones of the memory's size."""
    if picture is None:
        return None
    pixels = torch.from_numpy(numpy.ascontiguousarray(picture)).float()
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        ink = pixels[:, :, 3] / 255
        if float(ink.min()) == 1.0:  # an opaque picture: what is dark is ink
            ink = 1 - pixels[:, :, :3].mean(2) / 255
    else:
        ink = 1 - (pixels.mean(2) if pixels.ndim == 3 else pixels) / 255
    set_ = adaptive_avg_pool2d(ink[None, None], SIDE)[0, 0] > INK
    return set_.float() if bool(set_.any()) else None


@torch.no_grad()
def retrieve(image: Tensor, steps: int) -> Retrieval:
    """Run the network from the image for a number of updates."""
    model = memory().model
    c = model.clamped(image.reshape(1, -1))
    h = model.start(image.reshape(1, -1))
    shown, energy, residual = [look(h)], [model.energy(h, c).item()], list[float]()
    for _ in range(min(max(int(steps), 1), 100)):
        new = model(h, c)
        residual.append(float((new - h).norm() / new.norm()))
        h = new
        shown.append(look(h))
        energy.append(model.energy(h, c).item())
    final = (shown[-1] >= 0.5).float()
    distances = (digits(SIDE) - final.flatten()).abs().mean(dim=1)
    nearest = int(distances.argmin())
    return Retrieval(torch.stack(shown), energy, residual, nearest, float(distances[nearest]))


def look(h: Tensor) -> Tensor:
    """What the output neurons show."""
    model = memory().model
    return torch.sigmoid(model.slope * model.output(h)).view(SIDE, SIDE)
