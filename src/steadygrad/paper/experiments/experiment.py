"""What an experiment is: a config, presets of it, and a function that runs one trial."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, get_args, get_type_hints

from steadygrad.paper.records import Record, trial_id

Config: TypeAlias = Any  # an instance of the experiment's own frozen dataclass
ReportProgress = Callable[[int, int, str], None]
"""report(done, total, "loss 0.12"): how far a trial is, and a word about it."""


@dataclass(frozen=True)
class Preset:
    """Trials in the order in which they start, the expected minutes on two cores, and a sentence."""

    trials: tuple[Config, ...]
    minutes: float
    about: str


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    `config` is a frozen dataclass of JSON scalars with a `seed`; its attribute docstrings become the help of the command line.
    `run` is a function of a module (worker processes import it) that returns the reproducible result; what it puts under
    "measured" (times, memory) is kept apart. It is called as run(config, report) or, where it resumes, as run(config, report,
    checkpoint). `headline` is the running result in a few words.
    """

    name: str
    about: str
    config: type
    presets: Mapping[str, Preset]
    run: Callable[..., dict[str, Any]]
    headline: Callable[[Sequence[Record]], str]
    resumes: bool = False
    """Whether `run` takes a third argument, a `Checkpoint`, and goes on from what a killed trial saved there."""

    def __post_init__(self) -> None:
        if not dataclasses.is_dataclass(self.config) or "seed" not in self.config.__dataclass_fields__:
            raise TypeError(f"the config of {self.name!r} is {self.config!r}; give a frozen dataclass with a field seed.")
        for name, preset in self.presets.items():
            for trial in preset.trials:
                if not isinstance(trial, self.config):
                    raise TypeError(
                        f"preset {name!r} of {self.name!r} has the trial {trial!r}; expected a {self.config.__name__}."
                    )
        object.__setattr__(self, "presets", MappingProxyType(dict(self.presets)))

    def trial(self, config: Config) -> str:
        """The name of this config's record."""
        return trial_id(self.name, settings(config))


def settings(config: Config) -> dict[str, Any]:
    """The config as a record stores it: without what was not there when the first records were written, and is as it was then.

    A whole number in a float field becomes a float, so that 1 and 1.0 are one trial.
    """
    hints = get_type_hints(type(config))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise TypeError(
                f"{field.name} of {config!r} is a {type(value).__name__}; a config holds str, int, float, bool or None only."
            )
        if "before" in field.metadata and value == field.metadata["before"]:
            continue
        value = field.metadata.get("stored", {}).get(value, value)
        kinds = get_args(hint) or (hint,)
        values[field.name] = float(value) if type(value) is int and float in kinds and int not in kinds else value
    return values


def before(value: Any) -> dict[str, Any]:
    """Metadata of a config's field that came when records without it were there: they ran with this value.

    A trial with that value is the trial that it always was: its record has no such entry, and its name stays the same.
    """
    return {"before": value}


def merge(experiment: Experiment, configs: Iterable[Config]) -> list[Config]:
    """The configs in their order, each trial once."""
    trials: dict[str, Config] = {}
    for config in configs:
        trials.setdefault(experiment.trial(config), config)
    return list(trials.values())
