"""The section of an experiment that nobody wrote one for: its trials and their numbers, as they are; and tables of settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report.section import Section, Table
from steadygrad.paper.report.text import number, plural

MOST_ROWS = 200
Config = Mapping[str, Any]


def section(records: Sequence[Record]) -> Section:
    """A row a trial: what differs between the configs, then every result that is one number or word."""
    name, configs = records[0].experiment, [record.config for record in records]
    fixed = alike(configs)
    trials = table([record for record in records if record.done], [key for key in keys(configs) if key not in fixed])
    return Section(name, name, (), (trials,) if trials.rows else (), shared(configs), f"steadygrad run {name}")


def shared(configs: Sequence[Config]) -> Table:
    rows = tuple((key, cell(value)) for key, value in alike(configs).items())
    return Table("settings", "Settings that all trials share.", ("setting", "value"), rows)


def settings(columns: Mapping[str, Config], without: Sequence[str] = ()) -> Table:
    """Settings side by side, a column a title."""
    names = [name for name in keys(list(columns.values())) if name not in without]
    rows = tuple((name, *(cell(column.get(name)) for column in columns.values())) for name in names)
    return Table("settings", "Settings of the modes.", ("setting", *columns), rows)


def table(done: Sequence[Record], varied: Sequence[str]) -> Table:
    pairs = [(record.config, record.result or {}) for record in sorted(done, key=order)]
    known = keys([result for _, result in pairs])
    shown = [key for key in known if any(is_scalar(result.get(key)) for _, result in pairs)]
    rows = [(*(cell(config.get(key)) for key in varied), *(cell(result.get(key)) for key in shown)) for config, result in pairs]
    hidden = ", ".join(key for key in known if key not in shown)
    note = f"Not shown, since more than one number each: {hidden}. " if hidden else ""
    note += f"The first {MOST_ROWS} of {plural(len(rows), 'trial')}." if len(rows) > MOST_ROWS else ""
    head = (*varied, *(f"{key} (result)" if key in varied else key for key in shown))
    return Table("trials", "The trials and their results.", head, tuple(rows[:MOST_ROWS]), note.strip())


def alike(configs: Sequence[Config]) -> dict[str, Any]:
    """The fields that do not differ between the configs, with their values."""
    known = [{key: json.dumps(value, sort_keys=True) for key, value in config.items()} for config in configs]
    return {key: value for key, value in (configs[0] if configs else {}).items() if len({of.get(key) for of in known}) == 1}


def keys(entries: Sequence[Config]) -> list[str]:
    """All keys in the order in which they come first."""
    return list(dict.fromkeys(key for entry in entries for key in entry))


def order(record: Record) -> list[tuple[int, float, str]]:
    """Sorts trials by their configs: numbers that a float can hold by size, everything else by its text."""
    sizes = [isinstance(value, (int, float)) and abs(value) < 1e300 for value in record.config.values()]
    return [(0, float(v), "") if size else (1, 0.0, repr(v)) for size, v in zip(sizes, record.config.values(), strict=True)]


def is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def cell(value: Any) -> str:
    return number(value) if value is None or is_scalar(value) else f"({type(value).__name__} of {len(value)})"
