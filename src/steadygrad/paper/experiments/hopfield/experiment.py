"""The paper's first experiment: ten MNIST digits in a continuous Hopfield network, learnt by each gradient method."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from steadygrad import Picard
from steadygrad.models.hopfield import Hopfield
from steadygrad.paper.experiments.checkpoint import NOT_KEPT, Checkpoint
from steadygrad.paper.experiments.experiment import ReportProgress, before
from steadygrad.paper.experiments.hopfield import looking
from steadygrad.paper.experiments.hopfield.data import SIDE, corrupt, digits, pack
from steadygrad.paper.experiments.hopfield.training import HopfieldMethod, Learning, Pass, Readout, Schedule, cotangent, pixels
from steadygrad.paper.experiments.methods import SPELLED, UNROLLED, Gradient, gradient, short
from steadygrad.paper.records import Record

FRESH = 10
"""Corruptions drawn anew after training, besides the one that validation uses."""


@dataclass(frozen=True)
class HopfieldConfig:
    """One trial: a network, a schedule and a gradient method."""

    mode: Literal["as-published", "corrected"] = "corrected"
    """as-published: the pixel is the raw state and the loss its L1 distance to the image, as in the released code; corrected: the
    pixel is the sigmoid of the state, as in the paper, and the loss is cross-entropy"""
    method: HopfieldMethod = field(default="neumann-rbp", metadata=SPELLED)
    """gradient method"""
    steps: int = 20
    """K: steps of TBPTT, RBP, CG-RBP; Neumann-RBP has K+1 terms; without effect on bptt and auto"""
    seed: int = 0
    """seed of the weights, the corruptions and the start of RBP"""
    side: int = SIDE
    """side of the images in pixels, a divisor of 28"""
    hidden: int = 1024
    """hidden neurons"""
    passes: int = 100
    """passes over the ten images"""
    batch: int = 10
    """images a training step"""
    slope: float = 3.0
    """b in φ(b h); the paper has 0.5, at which a set pixel moves φ from 0.5 to 0.62 only"""
    scale: float = 1e-3
    """standard deviation of the initial weights A, used as A + Aᵀ"""
    rate: float = 1e-3
    """learning rate of Adam"""
    warmup: int = 10
    """passes over which the learning rate rises from zero"""
    decays: bool = True
    """whether the learning rate falls to zero along a cosine"""
    updates: int = 50
    """T: updates of the network in one inference pass, at most"""
    rtol: float = 1e-5
    """in training, stop the updates once the state moves less than this, relative to its norm; 0: always take T updates"""
    corruption: float = 0.5
    """share of an image's set pixels that are cleared for validation"""
    validate_every: int = 10
    """passes between validations"""
    linearise: Literal["last", "previous"] = field(default="last", metadata=before("last"))
    """where implicit methods take J: at h_T, or at h_{T−1} as Listing 1 and the released code do"""
    shuffle: bool = field(default=False, metadata=before(False))
    """whether every pass has an order of the images of its own, as in the released code"""
    ridge: float = field(default=0.0, metadata=before(0.0))
    """added to the diagonal of CG-RBP's normal matrix; the released code has 1e-5"""
    leak: Literal["released", "text"] = field(default="released", metadata=before("released"))
    """released: h = Wφ(bh) at rest; text: h = 2Wφ(bh), which is what the paper's leak term says"""

    @property
    def readout(self) -> Readout:
        return "state" if self.mode == "as-published" else "sigmoid"

    @property
    def schedule(self) -> Schedule:
        previous = self.linearise == "previous" and self.method not in UNROLLED
        forward = Picard(max_steps=self.updates - previous, rtol=self.rtol)
        shuffle = self.seed if self.shuffle else None
        return Schedule(self.readout, self.passes, self.rate, self.warmup, self.decays, self.batch, forward, previous, shuffle)


def run(config: HopfieldConfig, report: ReportProgress, checkpoint: Checkpoint = NOT_KEPT) -> dict[str, Any]:
    """Learn the ten digits from clean images, then retrieve them from corrupted ones."""
    if config.validate_every < 1:
        raise ValueError(f"validate_every must be at least 1; got {config.validate_every}.")
    clean = digits(config.side)
    corrupted = corrupt(clean, config.seed, config.corruption)
    factor = 2.0 if config.leak == "text" else 1.0
    model = Hopfield(clean.shape[1], config.hidden, config.slope, config.scale, config.seed, factor)
    log = TrainingLog(config, model, clean, corrupted)
    learning = Learning(model, clean, config.schedule, partial(_gradient, config))
    training: list[float] = []
    seconds: list[float] = []
    if saved := checkpoint.load():
        learning.load_state_dict(saved["learning"])
        log.seen, training, seconds = saved["seen"], saved["training"], saved["seconds"]
    else:
        log.look(0)
    done = None
    for done, taken in _timed(iter(learning)):
        training.append(done.l1)
        seconds.append(taken)
        if done.number % config.validate_every == 0:
            log.look(done.number, done)
        report(done.number, config.passes, f"L1 {done.l1:.3f}")
        if done.number < config.passes and math.isfinite(done.l1):  # else the loop is over, and could not begin again
            checkpoint.save(
                lambda: {"learning": learning.state_dict(), "seen": log.seen, "training": training, "seconds": seconds}
            )
    if done is not None and done.number % config.validate_every:
        log.look(done.number, done)
    return {
        "training_l1": [short(value) for value in training],
        **log.result(),
        **_final(config, model, clean, corrupted),
        "measured": {
            "training_seconds": sum(seconds),
            "milliseconds_per_step": 1e3 * statistics.median(seconds) / math.ceil(len(clean) / config.batch),
        },
    }


class TrainingLog:
    """What is seen of the network every few passes."""

    def __init__(self, config: HopfieldConfig, model: Hopfield, clean: Tensor, corrupted: Tensor) -> None:
        self.config, self.model, self.clean, self.corrupted = config, model, clean, corrupted
        self.seen: dict[str, list[Any]] = {}

    def look(self, number: int, done: Pass | None = None) -> None:
        """Validate on the corrupted images; ρ(J) on the clean ones, where the training gradient is taken."""
        both = looking.retrieve(self.model, torch.cat([self.corrupted, self.clean]), self.config.updates)
        found, settled = both.split(len(self.clean))
        shown = pixels(self.model, found, self.config.readout)
        adjoint = None if done is None else done.solution.adjoint
        entry: dict[str, Any] = {
            "pass": number,
            "l1": short(float((shown - self.clean).abs().mean())),
            "clean_l1": short(float((pixels(self.model, settled, self.config.readout) - self.clean).abs().mean())),
            "pixel_error": short(looking.pixel_error(shown, self.clean)),
            "spectral_radius": _at(looking.spectral_radius, self.model, settled),
            "cotangent": short(float(cotangent(self.model, settled, self.clean, self.config.readout).min())),
            "forward_steps": None if done is None else done.solution.steps,
            "forward_residual": None if done is None else short(done.solution.residuals[-1][1]),
            "adjoint_residual": None if adjoint is None else short(adjoint.residual),
            "adjoint_products": None if adjoint is None else adjoint.products,
        }
        for key, value in entry.items():
            self.seen.setdefault(key, []).append(value)

    def result(self) -> dict[str, Any]:
        initial, final = self.seen["clean_l1"][0], self.seen["clean_l1"][-1]
        return {
            "validation": self.seen,
            "initial_loss": initial,
            "final_loss": final,
            # Liao et al. 2018, appendix: a trial succeeds if the final training loss is below half the initial one.
            "success": math.isfinite(final) and final < 0.5 * initial,
        }


def _final(config: HopfieldConfig, model: Hopfield, clean: Tensor, corrupted: Tensor) -> dict[str, Any]:
    """What is measured once, of the trained network."""
    way = looking.follow(model, corrupted, config.updates)
    shown = pixels(model, way.state, config.readout)
    trained = looking.follow(model, clean, config.updates)
    fresh = [corrupt(clean, config.seed + 1000 * draw, config.corruption) for draw in range(1, FRESH + 1)]
    others = pixels(model, looking.retrieve(model, torch.cat(fresh), config.updates), config.readout)
    return {
        "pixel_error": short(looking.pixel_error(shown, clean)),
        "pixel_error_fresh": short(looking.pixel_error(others, clean.repeat(FRESH, 1))),
        "pixel_error_clean_input": short(looking.pixel_error(pixels(model, trained.state, config.readout), clean)),
        "pixel_error_corrupted": short(looking.pixel_error(corrupted, clean)),
        "difference": _differences(way),
        "difference_clean": _differences(trained),
        "energy": [short(v) for v in way.energy],
        "energy_largest_rise": short(max(way.largest_rise, trained.largest_rise)),
        "spectral_radius": _at(looking.spectral_radius, model, trained.state),
        "norm": _at(looking.norm, model, trained.state),
        "images": {"clean": pack(clean), "corrupted": pack(corrupted), "retrieved": pack(shown >= 0.5)},
    }


def _differences(way: looking.Way) -> dict[str, list[float]]:
    return {"absolute": [short(v) for v in way.absolute], "relative": [short(v) for v in way.relative]}


def _at(measure: Callable[[Hopfield, Tensor], float], model: Hopfield, h: Tensor) -> float | None:
    """A number about J at h, or none where h is not finite."""
    return short(measure(model, h)) if h.isfinite().all() else None


def _gradient(config: HopfieldConfig, step: int) -> Gradient:
    """The method of a step: RBP draws its start anew each time."""
    return gradient(config.method, config.steps, seed=1_000_003 * (config.seed + 1) + step, ridge=config.ridge)


def _timed(passes: Iterator[Pass]) -> Iterator[tuple[Pass, float]]:
    """Each pass with the seconds it took."""
    while True:
        start = time.perf_counter()
        done = next(passes, None)
        if done is None:
            return
        yield done, time.perf_counter() - start


def headline(records: Sequence[Record]) -> str:
    """The running result in a few words."""
    words: list[str] = []
    for mode in ("corrected", "as-published"):
        results = [record.result for record in records if record.result is not None and record.config["mode"] == mode]
        if results:
            error = statistics.median(result["pixel_error_fresh"] for result in results)
            words.append(f"{mode} {sum(r['success'] for r in results)}/{len(results)} succeed, pixel error {error:.1%}")
    return "; ".join(words) or "no trial yet"
