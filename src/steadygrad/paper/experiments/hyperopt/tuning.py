"""Meta training by one method: the meta loss, the distance to the exact hypergradient on the way, and the last training."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import MultiStepLR

from steadygrad import hyper
from steadygrad.files import write_atomically
from steadygrad.paper.experiments.checkpoint import NOT_KEPT, Checkpoint
from steadygrad.paper.experiments.experiment import ReportProgress
from steadygrad.paper.experiments.hyperopt.config import HyperoptConfig
from steadygrad.paper.experiments.hyperopt.estimate import Distance, exact, method, samples
from steadygrad.paper.experiments.hyperopt.problem import Problem, free
from steadygrad.paper.experiments.methods import short
from steadygrad.state import State, leaves_of

SLOWER = 50
"""The meta step after which the meta rate is a tenth."""
SNAPSHOTS = (20, 40)
"""Meta steps whose training is shown by t-SNE."""
KEPT = ("movement", "compared", "trajectory", "weight", "seconds", "processor")
"""What a checkpoint has of the log, besides entries and counts."""
POINTS, STATES, DIMENSIONS = 200, 50, 32
"""Points of the last training curve, states of a trajectory, and the numbers that each is projected to."""


class TrainingLog:
    """What is seen of every meta step."""

    def __init__(self, config: HyperoptConfig, problem: Problem, report: ReportProgress, checkpoint: Checkpoint) -> None:
        self.config, self.problem, self.report, self.checkpoint = config, problem, report, checkpoint
        self.file = None if checkpoint.path is None else checkpoint.path.with_name(f"{checkpoint.path.stem}.tuning")
        """Where `hyper.tune` saves itself, before it calls us; we save that file with what we have seen, as one."""
        self.entries: list[hyper.MetaStep] = []
        self.movement: list[float | None] = []
        self.compared: dict[str, list[Any]] = {"meta_step": [], "cosine": [], "relative": []}
        self.trajectory: dict[str, Any] = {}
        self.weight: dict[str, list[float]] = {"right": [], "wrong": []}
        self.degenerate: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.processor: list[float] = []
        self._resume()
        self.start_clock()

    def _resume(self) -> None:
        """Go on from a checkpoint: put the tuning's own file back to the same meta step."""
        if self.file is None:
            return
        saved = self.checkpoint.load()
        self.file.unlink(missing_ok=True)
        if saved is None:
            return
        write_atomically(self.file, bytes(saved["tuning"].tolist()))
        self.entries = [hyper.MetaStep(**entry) for entry in saved["entries"]]
        self.degenerate = Counter(saved["degenerate"])
        for name in KEPT:
            setattr(self, name, saved[name])

    def _save(self) -> None:
        def state() -> dict[str, Any]:
            assert self.file is not None
            tuning = torch.frombuffer(bytearray(self.file.read_bytes()), dtype=torch.uint8)
            entries = [dataclasses.asdict(entry) for entry in self.entries]
            seen = {name: getattr(self, name) for name in KEPT}
            return {"tuning": tuning, "entries": entries, "degenerate": dict(self.degenerate), **seen}

        self.checkpoint.save(state)

    def start_clock(self) -> None:
        self.clock = time.perf_counter(), time.process_time()

    def __call__(self, entry: hyper.MetaStep, found: hyper.Hypergradient) -> None:
        self.seconds.append(time.perf_counter() - self.clock[0])
        self.processor.append(time.process_time() - self.clock[1])
        self.entries.append(entry)
        self.movement.append(None if found.residual is None else short(found.residual))
        self.degenerate.update(found.degenerate)
        values = {name: torch.tensor(value) for name, value in entry.hyper.items()}
        self._weigh(values)
        self._compare(entry.meta_step, values, found)
        if self.config.trajectory and entry.meta_step in SNAPSHOTS:
            self.trajectory[str(entry.meta_step)] = trajectory(self.config, self.problem, values)
        self.report(entry.meta_step, self.config.meta_steps, f"meta loss {entry.loss:.4f}")
        self._save()
        self.start_clock()

    def _weigh(self, values: Mapping[str, Tensor]) -> None:
        """The mean weight of the images with a right and with a wrong label."""
        wrong = self.problem.digits.wrong
        if "weight" in values and wrong.any() and not wrong.all():
            self.weight["right"].append(short(values["weight"][~wrong].mean().item()))
            self.weight["wrong"].append(short(values["weight"][wrong].mean().item()))

    def _compare(self, meta_step: int, values: Mapping[str, Tensor], found: hyper.Hypergradient) -> None:
        every = self.config.reference_every
        if self.config.method == "bptt" or not every or (meta_step > 1 and meta_step % every):
            return
        reference = exact(self.config, self.problem, values)
        distance = Distance.of(free(found.gradients, values), free(reference.gradients, values))
        self.compared["meta_step"].append(meta_step)
        self.compared["cosine"].append(distance.cosine)
        self.compared["relative"].append(distance.relative)


def tune(config: HyperoptConfig, problem: Problem, report: ReportProgress, checkpoint: Checkpoint = NOT_KEPT) -> dict[str, Any]:
    """Lower the meta loss by Adam on the free numbers, from the same network in every meta step."""
    log = TrainingLog(config, problem, report, checkpoint)
    found = hyper.tune(
        problem.step,
        problem.start,
        problem.objective,
        batches=problem.batches,
        steps=config.training_steps,
        meta_steps=config.meta_steps,
        method=method(config),
        last=samples(config, problem),
        outer=lambda parameters: torch.optim.Adam(parameters, lr=config.meta_rate),
        schedule=lambda outer: MultiStepLR(outer, [SLOWER], 0.1),
        progress=False,
        on_failure="ignore",
        callback=log,
        checkpoint=log.file,
    )
    kept = log.entries
    last = {name: torch.tensor(value) for name, value in kept[-1].hyper.items()}
    curve, state = last_training(config, problem, last)
    test = problem.test(state)
    before = None if test is None else problem.test(last_training(config, problem, problem.values())[1])
    return {
        "meta_loss": [short(entry.loss) for entry in kept],
        "gradient_norm": [short(entry.gradient_norm) for entry in kept],
        "hyper": {name: [list(map(short, entry.hyper[name])) for entry in kept] for name in last if name != "weight"},
        "weight": log.weight,
        "reference": log.compared if log.compared["meta_step"] else None,
        "movement": log.movement,
        "adjoint_residual": [None if entry.residual is None else short(entry.residual) for entry in kept],
        "degenerate": dict(log.degenerate),
        "last_training": curve,
        "trajectory": log.trajectory,
        "test_loss": None if test is None else short(test[0]),
        "test_accuracy": None if test is None else short(test[1]),
        "untuned_test_loss": None if before is None else short(before[0]),
        "untuned_test_accuracy": None if before is None else short(before[1]),
        "rejected": len(found.history) - len(kept),
        "measured": {
            "seconds_per_meta_step": statistics.median(log.seconds),
            "cpu_seconds_per_meta_step": statistics.median(log.processor),
        },
    }


def train(config: HyperoptConfig, problem: Problem, values: Mapping[str, Tensor]) -> Iterator[tuple[int, State, float]]:
    """One training with these hyperparameters: (step, state after it, training loss before it)."""
    state = problem.step.initial()
    with torch.no_grad():
        for t in range(config.training_steps):
            state = problem.step(state, dict(values), problem.batch(t))
            yield t + 1, state, problem.step.last_loss[0].item()


def last_training(config: HyperoptConfig, problem: Problem, values: Mapping[str, Tensor]) -> tuple[dict[str, Any], State]:
    """The training loss along one training, thinned, and the state at its end."""
    every = -(-config.training_steps // POINTS)
    curve: dict[str, Any] = {"step": [], "loss": []}
    end = problem.step.initial()
    for t, state, loss in train(config, problem, values):
        end = state
        if t % every == 0 or t == config.training_steps:
            curve["step"].append(t)
            curve["loss"].append(short(loss))
    return curve, end


def trajectory(config: HyperoptConfig, problem: Problem, values: Mapping[str, Tensor]) -> dict[str, Any]:
    """The parameters on their way, by one random projection that all trials share: it keeps distances to some 20 %
    (Johnson and Lindenstrauss 1984) at a thousandth of the size."""
    every = max(1, config.training_steps // STATES)
    size = sum(p.numel() for p in problem.step.initial()["parameters"].values())
    projection = torch.randn(size, DIMENSIONS, generator=torch.Generator().manual_seed(0)) / DIMENSIONS**0.5
    way: dict[str, Any] = {"step": [], "state": []}
    for t, state, _ in train(config, problem, values):
        if t % every == 0:
            flat = torch.cat([leaf.flatten() for leaf in leaves_of(state["parameters"])])
            way["step"].append(t)
            way["state"].append([float(f"{x:.4g}") for x in (flat @ projection).tolist()])
    return way
