"""What can be said on the command line; every field of an experiment's config is a flag."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Union, get_type_hints

import tyro

from steadygrad.paper.experiments.experiment import Config, Experiment, merge

PRESETS = ("smoke", "standard", "long", "paper")


@dataclass(frozen=True)
class RunOptions:
    """Run the trials of a preset that have no result yet; those that failed before are tried again.

    --only chooses among the trials of the preset; an option that is named after a setting changes it in all of them."""

    out: Path = Path("runs")
    """Folder for the records, one file a trial. A run that was stopped goes on from it."""
    workers: int | None = None
    """Trials at a time, each in a process with one torch thread; by default one a core, on Ray as many as the cluster takes."""
    engine: Literal["local", "ray"] = "local"
    """Where trials run: in processes on this machine, or on a Ray cluster (needs the extra steadygrad[ray])."""
    address: str | None = None
    """With --engine ray: host:port of its head, or auto; else RAY_ADDRESS, or a Ray for the time of a run, on 127.0.0.1."""
    cpus: float = 1.0
    """With --engine ray: cores that Ray reserves for a trial, which computes with one torch thread in any case."""
    gpus: float = 0.0
    """With --engine ray: GPUs that Ray reserves for a trial; it sees no others."""
    retries: int = 3
    """With --engine ray: how often a trial is begun again whose worker or machine was lost. What it raises is not retried."""
    only: tuple[str, ...] = ()
    """Choose trials of the preset: FIELD=VALUE ..., with several values as FIELD=A,B; say --only graph=cora seed=2,3."""
    dry_run: bool = False
    """Only print what would run and what is done already."""


@dataclass(frozen=True)
class ReportOptions:
    """Make one HTML page from records alone."""

    runs: Path = Path("runs")
    """Folder of the records."""
    out: Path = Path("report.html")
    """The page; its figures also go beside it, as SVG and PDF."""


@dataclass(frozen=True)
class ListOptions:
    """Show the experiments, their presets, how many trials they have and how long they take."""


@dataclass(frozen=True)
class Playground:
    """Serve three pages to play with on this machine: a memory, the methods, the diagnosis."""

    port: int = 7860
    """The port, on 127.0.0.1."""


@dataclass(frozen=True)
class Verb:
    """What was asked for. For a run also of which experiments, which preset, and what to change in its trials."""

    options: RunOptions | ReportOptions | ListOptions | Playground
    experiments: tuple[str, ...] = ()
    preset: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])


def parse(words: Sequence[str], experiments: Mapping[str, Experiment]) -> Verb:
    """Read the command line. SystemExit after help (code 0) or a mistake that has been explained (code 2)."""
    choices = [
        Annotated[one(item), tyro.conf.subcommand(item.name, description=item.about, prefix_name=False)]
        for item in experiments.values()
    ]
    everything = make_dataclass("All", [("preset", preset_choice(PRESETS), "smoke")], bases=(RunOptions,), frozen=True)
    about = "Every experiment, one after the other."
    choices.append(Annotated[everything, tyro.conf.subcommand("all", description=about, prefix_name=False)])
    experiment = Annotated[Union[tuple(choices)], tyro.conf.arg(name="")]  # noqa: UP007
    run = make_dataclass("RunVerb", [("experiment", experiment)], frozen=True)
    run.__doc__ = RunOptions.__doc__
    verbs = {"run": run, "report": ReportOptions, "list": ListOptions, "playground": Playground}
    chosen: Any = Union[tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in verbs.items())]  # noqa: UP007
    found: Any = tyro.cli(
        chosen,
        args=list(words),
        prog="steadygrad",
        description="Experiments on gradients at steady states.",
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    if not isinstance(found, run):
        return Verb(found)
    options: Any = found.experiment
    names = tuple(experiments) if isinstance(options, everything) else (type(options).__name__,)
    return Verb(options, names, options.preset, getattr(options, "changes", {}))


def one(experiment: Experiment) -> type:
    """The options of a run of one experiment."""
    fields = [
        ("preset", preset_choice(tuple(experiment.presets)), next(iter(experiment.presets))),
        ("changes", Annotated[flags(experiment), tyro.conf.arg(name="")], field(default_factory=dict)),
    ]
    return make_dataclass(experiment.name, fields, bases=(RunOptions,), frozen=True)


def preset_choice(names: tuple[str, ...]) -> Any:
    return Annotated[Literal[names], tyro.conf.arg(help='Which trials; see "steadygrad list".')]


def flags(experiment: Experiment) -> Any:
    """A TypedDict type in which every field of the config may be missing: what is missing stays as the preset has it."""
    hints = get_type_hints(experiment.config, include_extras=True)
    texts = attribute_docstrings(experiment.config)
    fields: dict[str, Any] = {}
    for item in dataclasses.fields(experiment.config):
        if item.name in {"preset", *RunOptions.__dataclass_fields__}:
            raise ValueError(f"the config of {experiment.name!r} has the field {item.name!r}, which is an option of every run.")
        hint = tyro.conf.arg(help=texts.get(item.name, ""), help_behavior_hint="(in all trials; default: as the preset has it)")
        fields[item.name] = Annotated[hints[item.name], hint, tyro.conf.FlagConversionOff]
    return TypedDict("Flags", fields, total=False)  # type: ignore[operator]


def attribute_docstrings(kind: type) -> dict[str, str]:
    """The strings below the fields of a class and its bases, which Python itself does not keep."""
    texts: dict[str, str] = {}
    for owner in reversed(kind.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for item, text in pairwise(body):
            match item, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    texts[name] = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(words))  # tyro breaks lines itself
                case _:
                    continue
    return texts


def chosen(experiment: Experiment, preset: str, only: Sequence[str]) -> list[Config]:
    """The preset's trials that have one of the values in each field that is named, as in "seed=2,3"."""
    kept = list(experiment.presets[preset].trials)
    names = [item.name for item in dataclasses.fields(experiment.config)]
    for word in only:
        name, _, values = word.partition("=")
        if not values or name not in names:
            raise ValueError(f"--only {word}: give FIELD=VALUE, with a setting of {experiment.name}: {', '.join(names)}.")
        known = dict.fromkeys(str(getattr(config, name)) for config in kept)
        if unknown := [value for value in values.split(",") if value not in known]:
            raise ValueError(
                f"--only {word}: no trial has {name} = {', '.join(unknown)}; there are those with {', '.join(known)}."
            )
        kept = [config for config in kept if str(getattr(config, name)) in values.split(",")]
    return kept


def trials(experiment: Experiment, preset: str, changes: Mapping[str, Any], only: Sequence[str] = ()) -> list[Config]:
    """The preset's trials, or some of them, with the changes in each; trials that have become the same are one."""
    return merge(experiment, (dataclasses.replace(config, **changes) for config in chosen(experiment, preset, only)))
