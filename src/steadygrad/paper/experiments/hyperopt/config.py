"""One trial of the hyperparameter experiment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from steadygrad.paper.experiments.experiment import before
from steadygrad.paper.experiments.hyperopt.problem import Mode, Samples
from steadygrad.paper.experiments.methods import SPELLED

HyperoptMethod = Literal[
    "bptt", "bptt-sqrt", "bptt-log", "tbptt", "rbp-uniform", "cg-rbp", "neumann-rbp", "auto", "forward", "all"
]
IMPLICIT = ("rbp-uniform", "cg-rbp", "neumann-rbp", "auto")


@dataclass(frozen=True)
class HyperoptConfig:
    """One trial: what is done, with which training and which hypergradient."""

    task: Literal["tune", "errors", "cost"] = "tune"
    """tune: meta training by one method; errors: the first hypergradient by all methods against the exact one; cost: time and
    memory of one hypergradient in a process of its own"""
    mode: Mode = "as-published"
    """as-published: rates and momenta, mini-batches, meta loss on the training images; corrected: weight decays and a weight for
    every training image, which move the steady state, all images in every step, meta loss on held-out images"""
    method: HyperoptMethod = field(default="neumann-rbp", metadata=SPELLED)
    """hypergradient method; all: one after the other (errors)"""
    last: Samples = "full"
    """data of the last training step, which implicit methods take as F: full: all; average: the mean over five mini-batches;
    fresh: a new mini-batch for every Neumann term, five times; step: the batch of that step (corrected: all images)"""
    training_steps: int = 1000
    """T: steps of one training"""
    steps: int = 50
    """K: steps of TBPTT, RBP and CG-RBP; Neumann-RBP has K+1 terms"""
    meta_steps: int = 40
    """steps of meta training (tune)"""
    seed: int = 0
    """seed of the initial network, the same in every meta step, and of RBP's draws"""
    images: int = 10_000
    """training images"""
    held_out: int = 0
    """images of the meta loss; 0: the training images themselves"""
    wrong: float = 0.0
    """share of training labels that are replaced by another digit"""
    batch: int = 200
    """images of a mini-batch; 0: all training images in every step"""
    layers: int = 3
    """hidden layers of 50 tanh units"""
    rate: float = 0.36787944117144233
    """learning rate, as published where it starts (log rate −1)"""
    momentum: float = 0.5
    """momentum, as published where it starts (logit 0)"""
    decay: float = 0.0
    """weight decay where it starts (corrected)"""
    meta_rate: float = 0.05
    """learning rate of Adam in meta training, a tenth of it after meta step 50"""
    reference_every: int = 10
    """meta steps between comparisons with the exact hypergradient (BPTT over all T steps), besides the first; 0: none (tune)"""
    shuffle: bool = field(default=False, metadata=before(False))
    """whether the mini-batches are drawn anew every time that all have been used, as in the released code (every 50 steps)"""
    trajectory: bool = False
    """keep the way of the network during training at meta steps 20 and 40 (tune)"""
    products: int = 100
    """steps of auto, at most"""
    repeats: int = 2
    """measurements of which the fastest counts; Neumann-RBP is measured in turns with BPTT (cost)"""

    def __post_init__(self) -> None:
        for name in ("training_steps", "meta_steps", "repeats", "steps", "products"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.reference_every < 0:
            raise ValueError(f"reference_every must be 0 or more; got {self.reference_every}.")
        if (self.method == "all") != (self.task == "errors"):
            raise ValueError(f"method=all goes with task=errors, and only with it; got {self.method} and {self.task}.")
        if self.last == "fresh" and self.method not in ("neumann-rbp", "all"):
            raise ValueError(f"last=fresh draws a mini-batch for every Neumann term, so it needs neumann-rbp; got {self.method}.")
        if self.mode == "corrected" and not (self.decay > 0 and self.held_out > 0 and self.batch == 0):
            raise ValueError(
                "the corrected mode tunes weight decays and the weights of all images on held-out ones: give decay > 0, "
                f"held_out > 0 and batch = 0; got {self.decay}, {self.held_out} and {self.batch}."
            )
