"""The images to be stored: the first MNIST digit of each class in black and white, and their corruption."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from steadygrad.models.hopfield import corrupt
from steadygrad.paper.datasets import mnist

__all__ = ["SIDE", "corrupt", "digits", "pack", "unpack"]

SIDE = 28


def digits(side: int = SIDE) -> Tensor:
    """(10, side²) zeros and ones: the first training image of each digit, a pixel set where there is any ink.

    A smaller side, for quick runs, averages blocks of pixels and sets those with a quarter of full ink.
    """
    if side < 1 or SIDE % side:
        raise ValueError(f"side must divide {SIDE}, the side of an MNIST image; got {side}.")
    data = mnist()
    first = [int((data.labels == digit).nonzero()[0]) for digit in range(10)]
    images = data.images[first].float() / 255
    if side == SIDE:
        return (images > 0).float().flatten(1)
    return (avg_pool2d(images, SIDE // side) > 0.25).float().flatten(1)


def pack(images: Tensor) -> list[str]:
    """Black and white images as hexadecimal digits, eight pixels a pair, the first pixel in the highest bit."""
    return [bytes(_bytes(row)).hex() for row in images.ne(0).int().tolist()]


def unpack(packed: list[str], pixels: int) -> Tensor:
    """What `pack` was given, as (images, pixels) zeros and ones."""
    rows = [[bit for byte in bytes.fromhex(text) for bit in map(int, f"{byte:08b}")][:pixels] for text in packed]
    return torch.tensor(rows, dtype=torch.float32).view(len(packed), pixels)


def _bytes(bits: list[int]) -> list[int]:
    padded = bits + [0] * (-len(bits) % 8)
    return [int("".join(map(str, padded[i : i + 8])), 2) for i in range(0, len(padded), 8)]
