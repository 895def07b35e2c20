"""How well images were stored, and the damage by which that is tried."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

TOLERATED = 0.02
"""The share of wrong pixels, with half of the set ones cleared, up to which an image counts as stored well."""
SHOWN = 10
"""Images that a message names."""


class MemoryWarning(UserWarning):
    """Something was not stored well, or a recall did not settle."""


@dataclass(frozen=True)
class Stored:
    """How well each image was stored: the share of its pixels that come back wrong."""

    clean: tuple[float, ...]
    """The share of wrong pixels of each image when it is recalled from itself."""
    corrupted: tuple[float, ...]
    """The share of wrong pixels of each image with half of its set pixels cleared, the mean of five draws."""

    @property
    def badly(self) -> tuple[int, ...]:
        """The numbers, from 0, of the images that were not stored well: not `clean` without an error, or over 2 % `corrupted`."""
        errors = enumerate(zip(self.clean, self.corrupted, strict=True))
        return tuple(number for number, (clean, corrupted) in errors if not (clean == 0 and corrupted <= TOLERATED))

    @property
    def well(self) -> bool:
        return not self.badly

    def __str__(self) -> str:
        if self.well:
            worst = f"{max(self.corrupted):.1%}"
            return f"{len(self.clean)} stored; with half of its set pixels cleared, at most {worst} of an image comes back wrong."
        named = ", ".join(f"{i} ({self.clean[i]:.1%}, {self.corrupted[i]:.1%})" for i in self.badly[:SHOWN])
        more = ", ..." if len(self.badly) > SHOWN else ""
        return (
            f"{len(self.badly)} of {len(self.clean)} not stored well: image {named}{more}. In brackets: pixels that come back "
            "wrong from the image itself, and with half of its set pixels cleared. Take more passes, more hidden neurons or "
            "another rate, or leave out some images that are nearly alike."
        )


def corrupt(images: Tensor, seed: int, fraction: float = 0.5) -> Tensor:
    """The images with a `fraction` of the set pixels of each cleared, drawn by `seed`."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must lie between 0 and 1; got {fraction}.")
    generator = torch.Generator().manual_seed(seed)
    out = images.clone()
    for row in out:
        on = row.nonzero().squeeze(1)
        row[on[torch.randperm(len(on), generator=generator)[: round(fraction * len(on))]]] = 0
    return out
