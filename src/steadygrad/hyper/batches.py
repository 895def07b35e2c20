"""Where training gets its batches from: a function of the step, a list, or anything that can be iterated again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batches:
    """The batch of each step from `first` on.

    A function `batches(t)` gives the batch of step t; a list is cycled through; any other iterable (a DataLoader) is iterated,
    and again from its start when it ends. Generators of a loader's own are seeded from torch's random state at the start of a
    stream, so that whoever sets that state (a seed, a checkpoint, a check that trains again) sets the order of the batches too.

    >>> stream = Batches(["a", "b", "c"], first=2).stream()
    >>> [next(stream) for _ in range(3)]
    ['c', 'a', 'b']
    """

    source: Any
    first: int = 0
    steps: int | None = None
    """How many of them are for training, where that is known; implicit methods may read on."""

    @classmethod
    def of(cls, source: Any) -> Batches:
        if isinstance(source, Batches):
            return source
        if isinstance(source, (Tensor, tuple, dict, str)):
            raise TypeError(
                f"batches is a {type(source).__name__}, which looks like one batch; give a list of batches ([batch] for the "
                "same at every step), a function batches(t) of the step, or a DataLoader."
            )
        if isinstance(source, Iterator):
            raise TypeError(
                "batches is an iterator, which can be read once only; give a list, a function of the step, or a loader."
            )
        if not callable(source) and not isinstance(source, Iterable):
            raise TypeError(f"batches must be a list, a function of the step, or a loader; got {type(source).__name__}.")
        if isinstance(source, Sequence) and not len(cast("Sequence[Any]", source)):
            raise ValueError("batches is empty.")
        return cls(source)

    @property
    def distinct(self) -> int | None:
        """After how many batches they repeat, where that is known: the length of a list."""
        return len(cast("Sequence[Any]", self.source)) if isinstance(self.source, Sequence) else None

    def stream(self) -> Iterator[Any]:
        """The batches, without end."""
        if isinstance(self.source, Sequence):
            batches = cast("Sequence[Any]", self.source)
            t = self.first
            while True:
                yield batches[t % len(batches)]
                t += 1
        if callable(self.source):
            t = self.first
            while True:
                yield self._made(t)
                t += 1
        _follow_torch(self.source)
        while True:  # a loader counts no steps: it starts afresh
            empty = True
            for batch in self.source:
                empty = False
                yield batch
            if empty:
                raise ValueError("batches gave no batch at all.")

    def _made(self, t: int) -> Any:
        """The batch that the function gives for step t."""
        function = cast("Callable[[int], Any]", self.source)
        try:
            return function(t)
        except Exception as error:
            if self.steps is None or t < self.first + self.steps:
                raise
            raise ValueError(
                f"batches({t}) failed ({type(error).__name__}: {error}). Training takes steps {self.first} to "
                f"{self.first + self.steps - 1}, but last=Average(m), with m=8 the default, and last=Fresh(m) read on past its "
                "end. Give last=Full(batch), last=Last(), or a function that cycles, such as lambda t: data[t % len(data)]."
            ) from error


def _follow_torch(loader: Any) -> None:
    """Seed the generators of a loader and its samplers by draws from torch's own; a loader without any draws from that itself."""
    parts: list[Any] = [loader]
    for part in parts:  # grows: a loader has a batch sampler, which has a sampler
        inside = (getattr(part, name, None) for name in ("sampler", "batch_sampler"))
        parts += [found for found in inside if found is not None and not any(found is known for known in parts)]
    generators = {id(g): g for part in parts if isinstance(g := getattr(part, "generator", None), torch.Generator)}
    for generator in generators.values():
        if generator is not torch.default_generator:
            generator.manual_seed(int(torch.empty((), dtype=torch.int64, device="cpu").random_()))
