"""Which trials make the experiment: quick ones, those of the published report, and the paper's own counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steadygrad.paper.experiments.experiment import Preset
from steadygrad.paper.experiments.hyperopt.config import HyperoptConfig, HyperoptMethod
from steadygrad.paper.experiments.methods import CHECKPOINTED

PUBLISHED = HyperoptConfig(shuffle=True)
EARLIER = HyperoptConfig()
"""What `standard` runs, since its records are there: the mini-batches in one order."""
CORRECTED = HyperoptConfig(
    mode="corrected",
    last="step",
    images=500,
    held_out=1000,
    wrong=0.3,
    batch=0,
    layers=0,
    rate=1.0,
    momentum=0.9,
    decay=0.01,
)
GRADIENTS: tuple[HyperoptMethod, ...] = ("neumann-rbp", "tbptt", "bptt", "rbp-uniform", "cg-rbp", "auto")
CHEAPER: tuple[HyperoptMethod, ...] = ("neumann-rbp", "tbptt", "bptt", "rbp-uniform")
WITH_K: tuple[HyperoptMethod, ...] = ("neumann-rbp", "tbptt", "rbp-uniform")
"""Those of the cheaper ones that have a K."""
REPEATS = 4
"""Measurements of a cost: on a machine that others use, one or two may all be slow."""
SHOWN: tuple[HyperoptMethod, ...] = ("neumann-rbp", "tbptt")
"""The methods whose trajectories the paper shows."""


def tuned(config: HyperoptConfig, methods: tuple[HyperoptMethod, ...] = GRADIENTS) -> Iterator[HyperoptConfig]:
    """The config with every method. As published there is no auto: J has no steady state to be exact about."""
    for method in methods:
        if method != "auto" or config.mode == "corrected":
            yield replace(config, method=method, trajectory=config.trajectory and method in SHOWN)


def costs(config: HyperoptConfig, repeats: int = REPEATS) -> Iterator[HyperoptConfig]:
    """One meta step: BPTT against the others for K = 10, 50, 100, and Neumann-RBP over T; BPTT in less memory."""
    config = replace(config, task="cost", repeats=repeats)
    yield replace(config, method="bptt")
    for steps in (10, 50, 100):
        yield replace(config, method="neumann-rbp", steps=steps)
        yield replace(config, method="neumann-rbp", steps=steps, last="step")
        yield replace(config, method="tbptt", steps=steps)
    for training_steps in (100, 500):
        short = replace(config, training_steps=training_steps)
        yield from (replace(short, method=method) for method in ("bptt", "neumann-rbp"))
        yield replace(short, method="neumann-rbp", last="step")
    yield from (replace(config, method=method) for method in ("rbp-uniform", "cg-rbp", "forward", *CHECKPOINTED))


def smoke() -> Preset:
    small = {"images": 400, "training_steps": 40, "steps": 10, "meta_steps": 4, "reference_every": 2}
    trials: list[HyperoptConfig] = []
    for config in (replace(PUBLISHED, **small, batch=100), replace(CORRECTED, **{**small, "held_out": 200})):
        trials += [replace(config, method=method) for method in GRADIENTS if method != "auto"]
        trials.append(replace(config, task="errors", method="all"))
    tiny = replace(PUBLISHED, **small, batch=100, task="cost", repeats=1)
    trials += [replace(tiny, method=method) for method in ("bptt", "neumann-rbp")]
    return Preset(tuple(trials), 0.5, "400 images, T = 40, K = 10, four meta steps, both modes.")


def standard() -> Preset:
    """Tuning with K = 50 by two seeds; as published, by the first also with K = 100 and by CG-RBP, which is dear there."""
    trials: list[HyperoptConfig] = []
    for seed in (0, 1):
        for training_steps in (100, 500, 1000):
            for config in (CORRECTED, EARLIER):
                trials += compared(replace(config, training_steps=training_steps, seed=seed))
    for training_steps in (100, 500, 1000):
        config = replace(EARLIER, training_steps=training_steps, trajectory=training_steps == 1000)
        trials += tuned(config, ("cg-rbp",))
        trials += tuned(replace(config, steps=100), WITH_K)
    trials += costs(EARLIER)
    reshuffled = replace(EARLIER, training_steps=100, shuffle=True)  # what the order of the mini-batches does, alone
    trials += tuned(reshuffled, ("bptt", "neumann-rbp"))
    about = (
        "T = 100, 500, 1000 with K = 50, 40 meta steps, two seeds, both modes; as published also K = 100 and CG-RBP, with one "
        "seed, and a single departure, the released order of the mini-batches, in two trials; costs at T = 1000 with K = 10, 50, "
        "100."
    )
    return Preset(tuple(trials), 100, about)


def compared(config: HyperoptConfig) -> Iterator[HyperoptConfig]:
    """One T and seed: the first hypergradient by all methods, then meta training by each."""
    if config.mode == "corrected" or not config.seed:
        yield replace(config, task="errors", method="all")
    methods = GRADIENTS if config.mode == "corrected" else CHEAPER
    yield from tuned(replace(config, trajectory=config.training_steps == 1000), methods)


def long() -> Preset:
    """What decides M1 and M2: the longest training of the paper's, with the drop of the rate; M3 once more, for a quiet hour."""
    trials: list[HyperoptConfig] = []
    for seed in (0, 1, 2):
        config = replace(PUBLISHED, training_steps=1500, meta_steps=100, reference_every=0, seed=seed)
        trials += tuned(config, CHEAPER)
    trials += costs(EARLIER, repeats=6)
    about = "As published at the paper's length: T = 1,500, K = 50, 100 meta steps, four methods, three seeds; costs again."
    return Preset(tuple(trials), 170, about)


def paper() -> Preset:
    trials: list[HyperoptConfig] = []
    for seed in range(10):
        for training_steps in (100, 500, 1000, 1500):
            for steps in (50, 100):
                for config in (PUBLISHED, CORRECTED):
                    one = replace(config, training_steps=training_steps, steps=steps, seed=seed, meta_steps=100)
                    methods = GRADIENTS if steps == 50 else (*WITH_K, "cg-rbp")  # the others have no K
                    trials += tuned(replace(one, trajectory=training_steps == 1000), methods)
            for config in (PUBLISHED, CORRECTED):
                trials.append(replace(config, task="errors", method="all", training_steps=training_steps, seed=seed))
    trials += costs(EARLIER)
    return Preset(tuple(trials), 6_000, "The paper's counts: 10 seeds, 100 meta steps, T to 1,500; the corrected mode besides.")


PRESETS = {"smoke": smoke(), "standard": standard(), "long": long(), "paper": paper()}
