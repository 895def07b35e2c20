"""A tuning under way: how it takes a step, takes one back, saves itself and goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from steadygrad.calls.generators import random_states, restore_random_states
from steadygrad.hyper.bar import Bar
from steadygrad.hyper.checkpoint import check_readable, load, prepare, save
from steadygrad.hyper.constraints import Parametrised
from steadygrad.hyper.history import Candidate, MetaStep, Tuning, pack, plain, unpack
from steadygrad.hyper.problem import NonfiniteError
from steadygrad.hyper.result import Hypergradient
from steadygrad.solution import OnFailure, report_failure
from steadygrad.state import State, in_order, leaves_of, structure_of
from steadygrad.state.tree import fill, template_of

HALVINGS = 10
"""How often a step that leads to NaN is halved before the tuning gives up."""
Outer = Callable[[Iterable[Tensor]], Optimizer]
Attempt = Callable[[], tuple[Hypergradient, float]]
Callback = Callable[[MetaStep, Hypergradient], None]


@dataclass
class Tuner:
    """A tuning under way: what it has, what it saves, and how it takes a step or takes one back."""

    parametrised: Parametrised
    state: State
    """Where training starts from."""
    path: Path | None
    continued: bool
    patience: int | None
    memory: float
    """Bytes that graphs may take. A resumption keeps to them, though more or less may then be free."""
    done: int = 0
    halvings: int = 0
    before: dict[str, Tensor] | None = None
    """The free numbers at the last meta step that was kept: what a rejected step goes back towards."""
    best: Candidate | None = None
    """The candidate with the lowest validation loss so far."""
    kept: Candidate | None = None
    """The candidate of the last meta step that was kept."""
    history: list[MetaStep] = field(default_factory=list[MetaStep])
    tried: list[dict[str, Tensor]] = field(default_factory=list[dict[str, Tensor]])
    """The hyperparameters of the history as tensors, where there is a file to write them to."""

    def begin(self, outer: Outer, schedule: Callable[[Optimizer], LRScheduler] | None, settings: dict[str, Any]) -> None:
        """Make the outer optimiser, and go on from a checkpoint if there is one."""
        if self.path is not None:
            prepare(self.path)
        self.outer = _made(outer, self.parametrised.free)
        self.schedule = None if schedule is None else schedule(self.outer)
        if schedule is not None and not isinstance(self.schedule, LRScheduler):
            raise TypeError(
                f"schedule must make a scheduler of torch.optim.lr_scheduler; it made {type(self.schedule).__name__}."
            )
        groups = [{key: value for key, value in group.items() if key != "params"} for group in self.outer.param_groups]
        self.signature = {
            **settings,
            "hyper": {name: constraint.signature(free) for name, constraint, free in self.parametrised.items()},
            "outer": f"{type(self.outer).__name__}({groups})",
            "schedule": type(self.schedule).__name__,
            "state": structure_of(self.state),
            "shapes": [list(leaf.shape) for leaf in leaves_of(self.state)],
        }
        if self.path is None:
            return
        # On the disk states are tensors without their nesting: that may be of classes, which a file without code cannot name.
        self._template = template_of(self.state)
        check_readable(self._outer_states())
        saved = load(self.path, self.signature)
        if saved is not None:
            self._resume(saved)

    @property
    def stopped(self) -> str:
        """Why the tuning is over before its last meta step; empty while it is not."""
        if self.patience is None or self.best is None or self.done - self.best.meta_step < self.patience:
            return ""
        return f"no improvement in {self.patience} meta steps"

    def meta_step(self, attempt: Attempt, bar: Bar, callback: Callback | None, on_failure: OnFailure) -> None:
        """Train, differentiate, move; or go half the way back where that gave no finite numbers."""
        try:
            found, watched = attempt()
            self.parametrised.set_gradients(found.gradients)
            norm = self.parametrised.gradient_norm()
            if not (math.isfinite(norm) and math.isfinite(watched)):
                raise NonfiniteError(f"the gradient norm is {norm} and the validation loss {watched}")
        except NonfiniteError as error:
            self._reject(str(error), on_failure)
        else:
            self._keep(found, watched, norm)
            if callback is not None:
                callback(self.history[-1], found)
        bar.step(self.history[-1], self.best.loss if self.best else math.nan)

    def _keep(self, found: Hypergradient, watched: float, norm: float) -> None:
        """Take the step, and remember what led to it."""
        values = self.parametrised.values()
        self.done += 1
        self.halvings = 0
        self._record(_meta_step(self.done, values, found, watched, norm), values)
        self.kept = Candidate(hyper=values, loss=watched, meta_step=self.done, state=found.state)
        if self.best is None or watched < self.best.loss:
            self.best = self.kept
        self.before = self.parametrised.snapshot()
        self.outer.step()
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(watched)
        elif self.schedule is not None:
            self.schedule.step()
        if self.continued:
            self.state = found.state
        if self.done == 1 and self.path is not None:  # some optimisers have a state from their first step on only
            check_readable(self._outer_states())
        self._save()

    def _record(self, entry: MetaStep, values: dict[str, Tensor]) -> None:
        self.history.append(entry)
        if self.path is not None:
            self.tried.append({name: value.cpu() for name, value in values.items()})

    def _reject(self, reason: str, on_failure: OnFailure) -> None:
        """Go half the way back to the last good hyperparameters."""
        if self.before is None:
            raise NonfiniteError(f"the very first training failed, before any hyperparameter was changed: {reason}")
        self.halvings += 1
        if self.halvings > HALVINGS:
            raise NonfiniteError(f"a step of the outer optimiser was halved {HALVINGS} times and still: {reason}")
        values, nan = self.parametrised.values(), math.nan
        self._record(MetaStep(self.done + 1, plain(values), nan, nan, nan, rejected=reason), values)
        tried = self.parametrised.snapshot()
        self.parametrised.restore({name: torch.lerp(tried[name], good, 0.5) for name, good in self.before.items()})
        said: OnFailure = "ignore" if on_failure == "ignore" else "warn"  # it is dealt with, so nothing to raise
        report_failure(f"meta step {self.done + 1} was rejected and halved: {reason}", said)
        self._save()

    def _save(self) -> None:
        if self.path is None or self.best is None or self.kept is None:
            return
        save(
            self.path,
            {
                "signature": self.signature,
                "done": self.done,
                "halvings": self.halvings,
                "free": self.parametrised.snapshot(),
                "before": self.before,
                **self._outer_states(),
                "history": pack(self.history, self.tried),
                "best": self._packed(self.best),
                "kept": self._packed(replace(self.kept, state=self.state)),  # continued, its own; else nobody asks for it
                "memory": self.memory,
                "state": in_order(self._template, self.state),
                "random": random_states(),
            },
        )

    def _outer_states(self) -> dict[str, Any]:
        return {"outer": self.outer.state_dict(), "schedule": None if self.schedule is None else self.schedule.state_dict()}

    def _packed(self, candidate: Candidate) -> dict[str, Any]:
        return {**vars(candidate), "state": in_order(self._template, candidate.state)}

    def _unpacked(self, saved: dict[str, Any]) -> Candidate:
        return Candidate(**{**saved, "state": fill(self._template, saved["state"])})

    def _resume(self, saved: dict[str, Any]) -> None:
        self.done, self.halvings, self.before = saved["done"], saved["halvings"], saved["before"]
        self.parametrised.restore(saved["free"])
        self.outer.load_state_dict(saved["outer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(saved["schedule"])
        self.history, self.tried = unpack(saved["history"])
        self.best, self.kept = self._unpacked(saved["best"]), self._unpacked(saved["kept"])
        self.memory = saved["memory"]
        self.state = fill(self._template, saved["state"])
        restore_random_states(saved["random"])

    def result(self) -> Tuning:
        assert self.best is not None
        assert self.kept is not None
        taken = self.kept if self.continued else self.best
        return Tuning(
            **vars(taken),
            best=self.best,
            history=self.history,
            last=self.parametrised.values(),
            stopped=self.stopped or "all meta steps done",
        )


def _made(outer: Any, free: dict[str, Tensor]) -> Optimizer:
    if isinstance(outer, Optimizer) or not callable(outer):
        raise TypeError(
            f"outer must be a function that makes an optimiser from parameters, such as lambda p: torch.optim.Adam(p, lr=0.05); "
            f"got {type(outer).__name__}."
        )
    made: Any = outer(list(free.values()))
    if not isinstance(made, Optimizer):
        raise TypeError(f"outer must make a torch.optim optimiser from parameters; it made {type(made).__name__}.")
    if isinstance(made, torch.optim.LBFGS):
        raise TypeError("outer made LBFGS, which evaluates the loss several times a step; take one that steps by the gradient.")
    moved = {id(p) for group in made.param_groups for p in group["params"]}
    left = [name for name, tensor in free.items() if id(tensor) not in moved]
    if left:
        raise ValueError(f"the optimiser that outer made does not move {', '.join(left)}: pass on the parameters it is given.")
    return made


def _meta_step(meta_step: int, values: dict[str, Tensor], found: Hypergradient, watched: float, norm: float) -> MetaStep:
    noise = None
    if found.variance is not None:
        size = math.sqrt(sum(float(g.square().sum()) for g in found.gradients.values()))
        noise = math.sqrt(sum(float(v.sum()) for v in found.variance.values())) / size if size else None
    return MetaStep(
        meta_step=meta_step,
        hyper=plain(values),
        loss=found.loss,
        validation=watched,
        gradient_norm=norm,
        residual=None if found.adjoint is None else found.adjoint.residual,
        noise=noise,
        degenerate=tuple(found.degenerate),
        method=found.method,
        remaining=found.remaining,
    )
