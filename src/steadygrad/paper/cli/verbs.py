"""The command line: run | report | list. Each verb is a function."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from steadygrad.paper.cli.printable import printable
from steadygrad.paper.cli.welcome import welcome

if TYPE_CHECKING:
    from rich.console import Console

    from steadygrad.calls import Ray
    from steadygrad.paper.cli.arguments import ReportOptions, RunOptions, Verb
    from steadygrad.paper.engine import Summary
    from steadygrad.paper.experiments.experiment import Config, Experiment
    from steadygrad.paper.records import Record

FINE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
EXTRAS = ("tyro", "rich", "jinja2", "matplotlib", "sklearn")


class UsageError(Exception):
    """Something that the user can put right; shown without a traceback."""


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: fine; 1: a trial failed, or a part of the report; 2: bad usage; 130: Ctrl-C."""
    if argv is None:  # a process of our own: what torch has loaded stays, and looking through it took a fifth of `list`
        gc.freeze()
    try:
        return command(sys.argv[1:] if argv is None else argv)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRAS:
            raise
        return complain(f"{error.name} is not installed; the experiments need it: pip install 'steadygrad[experiments]'")
    except UsageError as error:
        return complain(str(error))
    except OSError as error:  # a name that is too long, a full disk
        return complain(str(error))
    except SystemExit as end:  # tyro has shown the help, or has said what is wrong
        return end.code if isinstance(end.code, int) else FINE
    except KeyboardInterrupt:
        print("steadygrad: stopped. What is done is kept; the same command goes on with the rest.", file=sys.stderr)
        return INTERRUPTED


def complain(text: str) -> int:
    print(f"steadygrad: {printable(text)}", file=sys.stderr)
    return USAGE


def command(words: list[str]) -> int:
    if not words:
        print(printable(welcome()))
        return FINE
    from rich.console import Console

    from steadygrad.paper.cli.arguments import Playground, ReportOptions, RunOptions, parse
    from steadygrad.paper.experiments import EXPERIMENTS

    asked = parse(words, EXPERIMENTS)
    console = Console()
    match asked.options:
        case RunOptions():
            return run(asked, asked.options, EXPERIMENTS, console)
        case ReportOptions():
            return report(asked.options, console)
        case Playground(port):
            return play(port)
        case _:
            return show(EXPERIMENTS, console)


def play(port: int) -> int:
    try:
        from steadygrad.paper.playground.app import serve
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed; the playground needs it: pip install 'steadygrad[playground]'"
        raise UsageError(missing) from error
    serve(port)
    return FINE


def run(asked: Verb, options: RunOptions, experiments: dict[str, Experiment], console: Console) -> int:
    from steadygrad.paper.cli.arguments import trials

    check(options)
    cluster_of(options)
    for name in asked.experiments:
        if asked.preset not in experiments[name].presets:
            raise UsageError(f"{name} has no preset {asked.preset!r}; it has {', '.join(experiments[name].presets)}.")
    try:
        plan = {name: trials(experiments[name], asked.preset, asked.changes, options.only) for name in asked.experiments}
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    for name, configs in plan.items():
        if asked.changes or options.only:
            say(console, selection(name, asked, options, len(experiments[name].presets[asked.preset].trials), len(configs)))
    if options.dry_run:
        return preview(plan, experiments, options.out, console)
    failed = carry_out(plan, experiments, options, console)
    say(console, f"records are in {options.out}; make the report with: steadygrad report --runs {options.out}")
    return FAILED if failed else FINE


def selection(name: str, asked: Verb, options: RunOptions, trials: int, left: int) -> str:
    """What --only and changed settings make of a preset: somebody who wants to choose trials may have changed all of them."""
    changes = " ".join(f"{key}={value}" for key, value in asked.changes.items())
    text = f"{name}: the {trials} trials of {asked.preset}"
    text += f" with {' '.join(options.only)}" if options.only else ""
    text += f", set to {changes} in each (--only chooses among them)" if changes else ""
    return f"{text}: {left} to have"


def check(options: RunOptions) -> None:
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers is {options.workers}; at least one process must do the work.")
    existing = next(path for path in (options.out.absolute(), *options.out.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UsageError(f"--out {options.out}: {existing} is a file; give a folder for the records.")


def cluster_of(options: RunOptions) -> Ray | None:
    """The Ray cluster that was asked for; None for processes on this machine."""
    from steadygrad.calls import Ray

    asked = {name: getattr(options, name) for name in ("address", "cpus", "gpus", "retries")}
    if options.engine == "ray":
        try:
            return Ray(**asked)
        except ValueError as error:
            raise UsageError(f"--engine ray: {error}") from error
    for name, value in asked.items():
        if value != type(options).__dataclass_fields__[name].default:
            raise UsageError(f"--{name} {value} is for --engine ray; in processes on this machine it would change nothing.")
    return None


def carry_out(plan: dict[str, list[Config]], experiments: dict[str, Experiment], options: RunOptions, console: Console) -> int:
    """Run the experiments one after the other; how many trials failed."""
    import steadygrad.paper.engine as engine
    from steadygrad.paper.cli.progress import Bar, Lines, live

    cluster = cluster_of(options)
    failed = 0
    with ExitStack() as stack:
        if console.is_terminal:
            display = stack.enter_context(live(console))
            displays = {name: Bar(experiments[name], display) for name in plan}
        else:
            displays = {name: Lines(experiments[name], console) for name in plan}
        for name, configs in plan.items():
            try:
                summary = engine.run(experiments[name], configs, options.out, options.workers, displays[name], cluster)
            except ModuleNotFoundError as error:
                if cluster is None or error.name != "ray":
                    raise
                raise UsageError(str(error)) from error
            except OSError as error:
                raise UsageError(
                    f"the run has stopped: {error}. Put that right; the same command goes on with the rest."
                ) from error
            failed += summary.failed
            say(console, f"{name}: {conclusion(summary, displays[name].records)}")
    return failed


def conclusion(summary: Summary, records: Sequence[Record]) -> str:
    text = f"{summary.done} done, {summary.skipped} were done already, {summary.failed} failed"
    text += " (their records say why; the same command tries them again)" if summary.failed else ""
    warned = sum(bool(record.measured.get("warnings")) for record in records)
    return text + (f"; {warned} gave warnings (in their records, under measured)" if warned else "")


def preview(plan: dict[str, list[Config]], experiments: dict[str, Experiment], out: Path, console: Console) -> int:
    """What a run would do, trial by trial: the fields in which the trials differ."""
    from steadygrad.paper.cli.progress import table
    from steadygrad.paper.experiments.experiment import settings
    from steadygrad.paper.records import read

    for name, configs in plan.items():
        found = read(out, name)
        states = {record.trial: "done" if record.done else "failed, again" for record in found.records}
        rows = [(states.get(experiments[name].trial(config), "to run"), settings(config)) for config in configs]
        keys = dict.fromkeys(key for _, row in rows for key in row)  # a setting at its default may be left out of one
        varied = [key for key in keys if len({repr(row.get(key)) for _, row in rows}) > 1]
        names = [experiments[name].trial(config) for config in configs]
        body = [
            (trial, state, *(str(row.get(key, "")) for key in varied)) for trial, (state, row) in zip(names, rows, strict=True)
        ]
        waiting = sum(state != "done" for state, _ in rows)
        say(console, f"{name}: {waiting} of {len(rows)} trials would run, {len(rows) - waiting} are done in {out}")
        table(console, ("trial", "state", *varied), body)
        for stranger in found.strangers:
            say(console, f"{name}: not read as a result: {stranger.path} ({stranger.reason})")
    return FINE


def report(options: ReportOptions, console: Console) -> int:
    if not options.runs.is_dir():
        raise UsageError(f"--runs {options.runs} is not a folder; give the one that a run wrote its records to (its --out).")
    from steadygrad.paper.report.page import NoRecordsError, write  # matplotlib and jinja2 take their time

    try:
        with console.status("reading the records and drawing the figures"):  # seen on a terminal only
            written = write(options.runs, options.out)
    except (NoRecordsError, OSError) as error:
        raise UsageError(f"no report was made: {error}") from error
    for stranger in written.strangers:
        say(console, f"not read as a result: {stranger.path} ({stranger.reason})")
    for problem in written.problems:
        say(console, f"missing in the report: {problem}")
    say(console, f"{written.records} records, report: {written.page.resolve()}")
    return FAILED if written.problems else FINE


def show(experiments: dict[str, Experiment], console: Console) -> int:
    from steadygrad.paper.cli.progress import duration, table

    rows = [
        (name, kind, str(len(preset.trials)), duration(60 * preset.minutes), preset.about)
        for name, experiment in experiments.items()
        for kind, preset in experiment.presets.items()
    ]
    table(console, ("experiment", "preset", "trials", "expected time, two cores", "about"), rows)
    return FINE


def say(console: Console, text: str) -> None:
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
