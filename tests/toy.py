"""An experiment that takes no time, for the tests of the frame. Worker processes import it."""

import math
import os
import random
import signal
import time
import warnings
from dataclasses import dataclass
from typing import Literal

from steadygrad.paper.experiments.experiment import Experiment, Preset


@dataclass(frozen=True)
class Toy:
    """Settings of the toy."""

    method: Literal["sum", "fail", "die", "exit", "tensor", "inf", "warn", "machine", "die-once"] = "sum"
    """What the trial does."""
    steps: int = 3
    """How many numbers are added."""
    rate: float = 0.1
    """What each number is multiplied with."""
    seconds: float = 0.0
    """How long a step takes."""
    seed: int = 0
    """Start of the random numbers."""

    def __post_init__(self):
        if self.steps < 0:
            raise ValueError(f"steps is {self.steps}; it must not be negative.")


def run(config, report):
    if diary := os.environ.get("TOY_DIARY"):  # one line a start, to count how often trials are run
        with open(diary, "a") as file:
            file.write(f"{config.method} {config.seed} {os.getpid()}\n")
    total = 0.0
    for step in range(config.steps):
        time.sleep(config.seconds)
        total += config.rate * random.random()
        report(step + 1, config.steps, f"sum {total:.2f}")
    match config.method:
        case "fail":
            raise RuntimeError("this trial was made to fail")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            raise SystemExit(3)
        case "tensor":
            import torch

            return {"total": torch.ones(2)}
        case "inf":
            return {"values": [math.nan, math.inf, -math.inf, 0.1 + 0.2], "nested": {"deep": [[math.nan]]}}
        case "machine":
            import torch

            denormal = torch.tensor(1e-310, dtype=torch.float64) * 0.5
            return {"flushes": denormal.item() == 0.0, "threads": torch.get_num_threads(), "omp": os.environ["OMP_NUM_THREADS"]}
        case "warn":
            warnings.warn("the toy is worn out", stacklevel=1)
    return {"total": total, "curve": [total / 3, -0.0], "measured": {"pid": os.getpid()}}


def headline(records):
    return f"{sum(record.done for record in records)} sums"


def seeds(count, **fields):
    return tuple(Toy(seed=seed, **fields) for seed in range(count))


TOY = Experiment(
    name="toy",
    about="Adds random numbers",
    config=Toy,
    presets={
        "smoke": Preset(seeds(3), 0.05, "three sums"),
        "standard": Preset((*seeds(8, seconds=0.1), Toy(method="fail")), 0.5, "eight slow sums, and a failure"),
        "paper": Preset(seeds(100, seconds=10.0), 60.0, "never ends"),
    },
    run=run,
    headline=headline,
)


def resuming(config, report, checkpoint):
    """Adds the same numbers as `run`, keeping count on the disk; killed at its second step the first time."""
    checkpoint.every = 0
    saved = checkpoint.load()
    done, total = (saved["done"], saved["total"]) if saved else (0, 0.0)
    here = 0
    for step in range(done, config.steps):
        if step == 1 and not saved:
            os.kill(os.getpid(), signal.SIGKILL)
        total += config.rate * random.random()
        here += 1
        checkpoint.save(lambda step=step, total=total: {"done": step + 1, "total": total})
    return {"total": total, "steps here": here}


RESUMING = Experiment("resuming", "", Toy, {"smoke": Preset((), 0.0, "")}, resuming, headline, resumes=True)
