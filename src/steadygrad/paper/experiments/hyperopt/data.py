"""The digits: as published the first 10,000 of MNIST, in mini-batches; corrected few, some mislabelled, with others held out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadygrad.paper.datasets import mnist

Batch = tuple[Tensor, Tensor]
AVAILABLE, CLASSES = 10_000, 10


@dataclass(frozen=True)
class Digits:
    """Images (n, 784) in [0, 1] less the mean training image, with their labels."""

    train: Batch
    validation: Batch | None
    """None: the meta loss is that of the training images, as published."""
    test: Batch | None
    wrong: Tensor
    """(n,) which training labels were replaced by another digit."""


def digits(images: int, held_out: int, wrong: float = 0.0, seed: int = 0) -> Digits:
    """The first `images` for training, the next `held_out` for validation, and the rest for the test.

    With held_out = 0 there is no validation and no test: as published. A share `wrong` of the training labels, drawn by `seed`,
    is replaced by another digit.
    """
    if not 1 <= images <= AVAILABLE:
        raise ValueError(f"images must lie between 1 and {AVAILABLE}; got {images}.")
    if held_out < 0 or (held_out and images + held_out >= AVAILABLE):
        raise ValueError(
            f"held_out must be 0, or leave test images among {AVAILABLE}; got {held_out} beside {images} training images."
        )
    if not 0 <= wrong <= 1:
        raise ValueError(f"wrong must lie between 0 and 1; got {wrong}.")
    data = mnist()
    x = data.images[:AVAILABLE].flatten(1).float() / 255
    x, y = x - x[:images].mean(0), data.labels[:AVAILABLE]
    end = images + held_out
    labels, mislabelled = mislabel(y[:images], wrong, seed)
    train = (x[:images].clone(), labels)
    if not held_out:
        return Digits(train, None, None, mislabelled)
    return Digits(train, (x[images:end].clone(), y[images:end]), (x[end:].clone(), y[end:]), mislabelled)


def mislabel(labels: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """The labels with a share of them replaced by another digit, and which ones."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(labels), generator=generator)[: round(share * len(labels))]
    wrong = torch.zeros(len(labels), dtype=torch.bool)
    wrong[chosen] = True
    shift = torch.randint(1, CLASSES, (len(labels),), generator=generator)
    return torch.where(wrong, (labels + shift) % CLASSES, labels), wrong


class Shuffled:
    """The mini-batch of every step, drawn anew whenever all have been used; the draw depends on seed and step alone."""

    def __init__(self, batch: Batch, size: int, seed: int) -> None:
        self.batch, self.size, self.seed = batch, size, seed
        self.count = len(batch[1]) // size
        self.drawn: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        return self.count

    def __call__(self, t: int) -> Batch:
        epoch, place = divmod(t, self.count)
        if self.drawn is None or self.drawn[0] != epoch:
            generator = torch.Generator().manual_seed(1_000_003 * (self.seed + 1) + epoch)
            self.drawn = epoch, torch.randperm(len(self.batch[1]), generator=generator)
        chosen = self.drawn[1][place * self.size : (place + 1) * self.size]
        return self.batch[0][chosen], self.batch[1][chosen]


def batches(batch: Batch, size: int) -> list[Batch]:
    """Consecutive mini-batches; a remainder that fills none is left out, as in the released code. Size 0: all at once."""
    count = len(batch[1])
    if not 0 <= size <= count:
        raise ValueError(f"batch must lie between 0 (all) and {count}, the number of training images; got {size}.")
    if not size:
        return [batch]
    return [(batch[0][i : i + size], batch[1][i : i + size]) for i in range(0, count - size + 1, size)]
