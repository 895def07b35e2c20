"""Which trials make the experiment: quick ones, those of the published report, and the paper's own counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steadygrad.paper.experiments.experiment import Preset
from steadygrad.paper.experiments.hopfield.experiment import HopfieldConfig
from steadygrad.paper.experiments.hopfield.training import HopfieldMethod

CORRECTED = HopfieldConfig()
PUBLISHED = HopfieldConfig(
    mode="as-published",
    passes=1000,
    batch=1,
    slope=0.5,
    scale=1e-3,
    rate=1e-3,
    warmup=0,
    decays=False,
    rtol=0.0,
    linearise="previous",
    shuffle=True,
    ridge=1e-5,
)
"""The settings of the paper and its released code."""
EARLIER = replace(PUBLISHED, linearise="last", shuffle=False, ridge=0.0)
"""What `standard` runs, since its records are there: J at h_T, images in one order, CG-RBP without a ridge."""
LONG: tuple[HopfieldMethod, ...] = ("neumann-rbp", "cg-rbp", "rbp-uniform", "tbptt")
"""The paper's methods that have a K."""
SMALL = {"side": 14, "hidden": 256}
"""A network of 196/256/196 neurons instead of 784/1024/784."""
TRUNCATED: tuple[HopfieldMethod, ...] = ("neumann-rbp", "cg-rbp", "rbp-uniform", "rbp-zeros", "tbptt")
"""The methods that have a K."""
WHOLE: tuple[HopfieldMethod, ...] = ("bptt", "auto")


def methods(config: HopfieldConfig, steps: tuple[int, ...] = (20, 10, 30)) -> Iterator[HopfieldConfig]:
    """The config with every method and every K."""
    for method in WHOLE:
        yield replace(config, method=method)
    for count in steps:
        for method in TRUNCATED:
            yield replace(config, method=method, steps=count)


def smoke() -> Preset:
    corrected = replace(CORRECTED, rate=4e-3, passes=80, **SMALL)
    published = replace(PUBLISHED, passes=4, validate_every=1, **SMALL)
    trials = (*methods(corrected, steps=(20,)), *methods(published, steps=(20,)))
    return Preset(trials, 0.5, "A network of 196/256/196 neurons, one seed: shows that everything runs.")


def one_change() -> Iterator[HopfieldConfig]:
    """What the corrected mode owes to which of its changes: each is taken back alone, with the exact gradient."""
    exact = replace(CORRECTED, method="bptt")
    yield replace(exact, slope=PUBLISHED.slope)
    yield replace(exact, mode="as-published")  # the read-out and its L1 loss
    yield replace(exact, batch=1, warmup=0, decays=False)


def fidelity(config: HopfieldConfig) -> Iterator[HopfieldConfig]:
    """What each point in which our first records depart from the paper or its code does, alone."""
    yield replace(config, linearise="previous")
    yield replace(config, shuffle=True)
    yield replace(config, method="cg-rbp", ridge=PUBLISHED.ridge)
    yield replace(config, leak="text")


def standard() -> Preset:
    trials: list[HopfieldConfig] = []
    for seed in range(8):
        trials += methods(replace(CORRECTED, seed=seed))
        if seed == 0:
            trials.append(EARLIER)  # all of the paper's passes, with its K = 20
            trials += one_change()
            trials += fidelity(replace(EARLIER, passes=30, validate_every=5))
            trials += [replace(EARLIER, method=method, **SMALL) for method in ("neumann-rbp", "bptt")]
        if seed < 4:
            trials += methods(replace(EARLIER, seed=seed, passes=30, validate_every=5))
    about = (
        "The paper's network, corrected with 8 seeds, as published with 4 seeds and 30 passes instead of 100 and 1,000; "
        "besides one trial of 1,000 passes, two of a network of 196/256/196 neurons, and seven single departures: three of "
        "the corrected mode taken back, four towards the paper's text and code."
    )
    return Preset(tuple(trials), 50, about)


def long() -> Preset:
    """What decides H1 to H4: the paper's passes, one seed, then another; BPTT with a smaller rate besides."""
    trials: list[HopfieldConfig] = []
    for seed in (0, 1):
        config = replace(PUBLISHED, seed=seed)
        trials.append(replace(config, method="bptt"))
        trials += [replace(config, method=method, steps=steps) for steps in (20, 10, 30) for method in LONG]
    trials.append(replace(PUBLISHED, method="bptt", rate=1e-4))
    about = (
        "As published at the paper's length: 1,000 passes, BPTT and four methods at K = 10, 20, 30, two seeds; BPTT with a "
        "tenth of the rate."
    )
    return Preset(tuple(trials), 300, about)


def paper() -> Preset:
    trials: list[HopfieldConfig] = []
    for seed in range(100):
        trials += [*methods(replace(PUBLISHED, seed=seed)), *methods(replace(CORRECTED, seed=seed))]
    return Preset(tuple(trials), 15_000, "The paper's counts: 100 seeds, 1,000 passes; the corrected mode with as many seeds.")


PRESETS = {"smoke": smoke(), "standard": standard(), "long": long(), "paper": paper()}
