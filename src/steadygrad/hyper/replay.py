"""Exact hypergradients of a whole training in the memory of a few of its states: what was not kept is trained again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadygrad.calls.generators import random_states, restore_random_states
from steadygrad.gradient import BPTT
from steadygrad.gradient.schedule import Plan
from steadygrad.gradient.trail import Trail
from steadygrad.hyper.batches import Place, Stream
from steadygrad.hyper.objective import pull, slope, total
from steadygrad.hyper.problem import Inner
from steadygrad.hyper.result import Chosen, Estimate
from steadygrad.hyper.training import Training
from steadygrad.state import State, leaves_of, map_state

WORTH = 6.0
"""Steps taken again, a step of training, up to which the default takes this way: about three times the time of BPTT."""


@dataclass(frozen=True)
class Mark:
    """A training before one of its steps: its state, its random numbers, and where its batches were."""

    state: State
    random: dict[str, Any]
    place: Place

    @classmethod
    def of(cls, state: State, stream: Stream, earlier: dict[str, Any] | None = None) -> Mark:
        """Before anything else is taken from the stream. Random states equal to earlier ones are kept once."""
        random = random_states()
        if earlier is not None:  # who does not draw does not pay for it
            random = {name: _shared(found, earlier[name]) for name, found in random.items()}
        return cls(map_state(lambda leaf: leaf.detach().clone(), state), random, stream.place())


class Replay:
    """A training of which some states are kept, to be gone back over.

    Batches are not kept but made again: a function of the step is called again, a loader read again from the start of the epoch.
    Random draws are repeated: those of torch, Python's `random` and numpy. All steps must be shown to `see` before they are
    taken; `estimate` goes back over them.
    """

    def __init__(self, inner: Inner, plan: Plan, start: Mark | None = None) -> None:
        self._inner = inner
        self.trail = Trail(plan)
        if start is not None and self.trail.wants(0):
            self.trail.keep(0, start)
        self._sums: list[Tensor | None] = [None] * len(inner.hyper)
        self._z: list[Tensor] = []
        self._live: Stream | None = None
        """The stream in use on the way back, where it stands after the step that was taken last."""
        self.doubt: str | None = None
        """What speaks against the result, after `estimate`."""

    def see(self, step: int, state: State, stream: Stream) -> None:
        """The state before a step, whose batch has not been read from the stream yet."""
        if self.trail.wants(step):
            self.trail.keep(step, self._marked(state, stream))

    def estimate(self, last: State) -> Estimate:
        """The objective at the end of training, and its gradient through all steps."""
        inner, self._last = self._inner, last
        end = slope(inner, last)
        afterwards = random_states()
        shown = list(getattr(inner.step, "last_loss", ()))
        self._z = end.state
        self.trail.reverse(inner.steps, self._advance, self._back)
        restore_random_states(afterwards)
        if shown:
            inner.step.last_loss[:] = shown  # type: ignore[attr-defined]
        return Estimate(last, end.value, [end.gradients(self._sums)])

    def _marked(self, state: State, stream: Stream) -> Mark:
        return Mark.of(state, stream, self.trail.kept[-1][1].random if self.trail.kept else None)

    def _restored(self, mark: Mark) -> Training:
        """The training as it was, its state a copy that a step may write into; the random numbers are set."""
        stream = self._live
        if stream is None or stream.place().taken != mark.place.taken:
            stream = self._live = self._inner.batches.resume(mark.place)
        restore_random_states(mark.random)
        return Training(self._inner, stream, map_state(Tensor.clone, mark.state))

    def _advance(self, at: int, mark: Mark, to: int) -> Mark:
        training = self._restored(mark)
        for _ in range(at, to):
            training.step(graph=False)
        return self._marked(training.state, training.stream)

    def _back(self, at: int, mark: Mark, end: int) -> None:
        """Back through the steps from `at` to `end`, taken again with a graph."""
        training = self._restored(mark)
        leaves = training.attach()
        for _ in range(at, end):
            training.step(graph=True)
        if end == self._inner.steps:
            self._compare(training.state)
        images = self._inner.split.part(training.state)[0]
        found = pull(images, self._z, [*leaves, *training.hyper.values()])
        self._z = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=False)]
        self._sums = [total(a, b) for a, b in zip(self._sums, found[len(leaves) :], strict=True)]

    def _compare(self, again: State) -> None:
        """Note steps that, taken again, lead elsewhere. Steps that were compiled may differ by rounding."""
        for found, true in zip(self._compared(again), self._compared(self._last), strict=True):
            size = torch.linalg.vector_norm(true.double())
            apart = torch.linalg.vector_norm(found.double() - true.double())
            if bool(apart > torch.finfo(true.dtype).eps ** 0.5 * size):
                self.doubt = _ELSEWHERE

    def _compared(self, state: State) -> list[Tensor]:
        """What is compared, each relative to its own size.

        Of the optimisers here all parameters together, all momenta together: the momentum of one tensor may be rounding alone, as
        that of a bias before a normalisation.
        """
        trainer = self._inner.trainer
        if trainer is None:
            return [leaf.detach() for leaf in self._inner.split.part(state)[0]]
        slots = [leaves_of(state[name]) for name in sorted(state) if name not in trainer.carried]
        return [torch.cat([leaf.detach().flatten() for leaf in leaves]) for leaves in slots if leaves]


def replayed(inner: Inner, method: BPTT) -> Chosen:
    """Train to the end, keeping what a method with checkpoints keeps, and go back over it."""
    training = Training(inner, inner.batches.stream(recall=True), map_state(Tensor.clone, inner.state))
    replay = Replay(inner, method.plan(inner.steps, known=True))
    training.go_on(inner.steps, see=replay.see)
    return Chosen(replay.estimate(training.state), method, doubt=replay.doubt)


def affordable(steps: int, memory: float, graph: float, state: float) -> BPTT | None:
    """The checkpoints with the fewest steps taken again, given the bytes of the graph of a step and of a state.

    None where memory does not hold a graph and a few states, or steps would be taken more than `WORTH` times again.
    """
    best: tuple[int, BPTT] | None = None
    graphs = 1
    while graphs <= steps and graphs * graph + state <= memory:
        checkpoints = min(steps, graphs + int((memory - graphs * graph) // max(state, 1.0)))
        method = BPTT(checkpoints=checkpoints, graphs=graphs)
        again = method.plan(steps, known=True).at_least_again(steps)
        if best is None or again < best[0]:
            best = again, method
        graphs *= 2
    return best[1] if best is not None and best[0] <= WORTH * steps else None


def size_of(state: State) -> int:
    """The bytes of a state."""
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves_of(state))


def _shared(found: Any, earlier: Any) -> Any:
    """The earlier of two random states where they are equal, so that it is kept once."""
    same = torch.equal(found, earlier) if isinstance(found, Tensor) else found == earlier
    return earlier if same else found


_ELSEWHERE = (
    "training, taken again from the states that were kept, ended elsewhere, so the hypergradient is wrong: a step or its batches "
    "depend on something that is not in its state (a counter of its own, an iterator that goes on, a generator that is neither "
    'torch\'s, numpy\'s nor Python\'s). Keep it in the state, or use method="bptt" or "forward".'
)
