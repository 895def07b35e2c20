"""Where training gets its batches from: a function of the step, a list, or anything that can be iterated again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from steadygrad.calls.generators import random_states, restore_random_states


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

    def stream(self, recall: bool = False) -> Stream:
        """The batches, without end. With `recall` its places can be returned to, which loaders need a little time for."""
        return Stream(self, recall)

    def resume(self, place: Place) -> Stream:
        """The batches from a place of an earlier stream on.

        A loader is read again from the start of its epoch, whose random state is set for it: set yours afterwards.
        """
        return Stream(self, recall=True, place=place)

    def made(self, t: int) -> Any:
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


class Place(NamedTuple):
    """A place in a stream: how many batches came before, in all and in this epoch of a loader, and how the epoch began."""

    taken: int
    of_epoch: int
    epoch: tuple[dict[str, Any], list[Tensor]] | None


class Stream(Iterator[Any]):
    """The batches of a training, one after the other; from a place of an earlier stream of theirs on, if one is given."""

    def __init__(self, batches: Batches, recall: bool, place: Place | None = None) -> None:
        self._batches = batches
        self._recall = recall
        self._loads = not (isinstance(batches.source, Sequence) or callable(batches.source))
        self._taken, self._of_epoch = 0 if place is None else place.taken, 0
        self._epoch: tuple[dict[str, Any], list[Tensor]] | None = None
        self._reading: Iterator[Any] | None = None
        if place is not None and place.epoch is not None:
            random, generators = place.epoch
            restore_random_states(random)
            for generator, state in zip(_generators(batches.source), generators, strict=True):
                generator.set_state(state)
            self._begin()
            for _ in range(place.of_epoch):
                self._loaded()

    def place(self) -> Place:
        """Where the stream is now."""
        return Place(self._taken, self._of_epoch, self._epoch)

    def __next__(self) -> Any:
        source, self._taken = self._batches.source, self._taken + 1
        if self._loads:
            return self._loaded()
        t = self._batches.first + self._taken - 1
        return source[t % len(source)] if isinstance(source, Sequence) else self._batches.made(t)

    def _loaded(self) -> Any:
        if self._reading is None:
            _follow_torch(self._batches.source)
            self._begin()
        assert self._reading is not None
        try:
            batch = next(self._reading)
        except StopIteration:
            self._begin()  # a loader counts no steps: it starts afresh
            batch = next(self._reading, _NOTHING)
            if batch is _NOTHING:
                raise ValueError("batches gave no batch at all.") from None
        self._of_epoch += 1
        return batch

    def _begin(self) -> None:
        """Start an epoch of a loader."""
        if self._recall:
            self._epoch = random_states(), [generator.get_state() for generator in _generators(self._batches.source)]
        self._reading, self._of_epoch = iter(self._batches.source), 0


_NOTHING = object()


def _follow_torch(loader: Any) -> None:
    """Seed the generators of a loader and its samplers by draws from torch's own; a loader without any draws from that itself."""
    for generator in _generators(loader):
        generator.manual_seed(int(torch.empty((), dtype=torch.int64, device="cpu").random_()))


def _generators(loader: Any) -> list[torch.Generator]:
    """The generators that a loader and its samplers have of their own, each once."""
    parts: list[Any] = [loader]
    for part in parts:  # grows: a loader has a batch sampler, which has a sampler
        inside = (getattr(part, name, None) for name in ("sampler", "batch_sampler"))
        parts += [found for found in inside if found is not None and not any(found is known for known in parts)]
    generators = {id(g): g for part in parts if isinstance(g := getattr(part, "generator", None), torch.Generator)}
    return [generator for generator in generators.values() if generator is not torch.default_generator]
