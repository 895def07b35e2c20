"""Where training gets its batches from: a function of the step, a list, or anything that can be iterated again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor


@dataclass(frozen=True)
class Batches:
    """The batch of each step from `first` on.

    A function `batches(t)` gives the batch of step t; a list is cycled through; any other iterable (a DataLoader) is iterated,
    and again from its start when it ends.

    >>> stream = Batches(["a", "b", "c"], first=2).stream()
    >>> [next(stream) for _ in range(3)]
    ['c', 'a', 'b']
    """

    source: Any
    first: int = 0

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
    def constant(self) -> bool:
        """Whether every step is known to see the same batch."""
        return isinstance(self.source, Sequence) and len(cast("Sequence[Any]", self.source)) == 1

    def stream(self) -> Iterator[Any]:
        """The batches, without end."""
        if isinstance(self.source, Sequence):
            batches = cast("Sequence[Any]", self.source)
            t = self.first
            while True:
                yield batches[t % len(batches)]
                t += 1
        if callable(self.source):
            function = cast("Callable[[int], Any]", self.source)
            t = self.first
            while True:
                yield function(t)
                t += 1
        while True:  # a loader counts no steps: it starts afresh
            empty = True
            for batch in self.source:
                empty = False
                yield batch
            if empty:
                raise ValueError("batches gave no batch at all.")
