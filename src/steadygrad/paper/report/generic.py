"""The section of an experiment that nobody wrote one for: its trials and their numbers, as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report.section import Section, Table
from steadygrad.paper.report.text import number, plural

MOST_ROWS = 200


def section(records: Sequence[Record]) -> Section:
    """A row a trial: what differs between the configs, then every result that is one number or word."""
    name = records[0].experiment
    configs = [record.config for record in records]
    trials = table(sorted((record for record in records if record.done), key=order), split(configs)[0])
    return Section(name, name, (), (trials,) if trials.rows else (), shared(configs), f"steadygrad run {name}")


def shared(configs: Sequence[dict[str, Any]]) -> Table:
    fixed = split(configs)[1]
    return Table("settings", "Settings that all trials share.", ("setting", "value"), rows(fixed))


def settings(columns: Mapping[str, Mapping[str, Any]], without: Sequence[str] = ()) -> Table:
    """Settings side by side, a column a title."""
    names = [name for name in keys(list(columns.values())) if name not in without]
    rows = tuple((name, *(cell(column.get(name)) for column in columns.values())) for name in names)
    return Table("settings", "Settings of the modes.", ("setting", *columns), rows)


def table(done: Sequence[Record], varied: Sequence[str]) -> Table:
    results = [record.result or {} for record in done]
    shown = [key for key in keys(results) if any(is_scalar(result.get(key)) for result in results)]
    hidden = [key for key in keys(results) if key not in shown]
    body = tuple(
        tuple(cell(record.config.get(key)) for key in varied) + tuple(cell(result.get(key)) for key in shown)
        for record, result in zip(done, results, strict=True)
    )
    notes: list[str] = []
    if hidden:
        notes.append(f"Not shown, since more than one number each: {', '.join(hidden)}.")
    if len(body) > MOST_ROWS:
        notes.append(f"The first {MOST_ROWS} of {plural(len(body), 'trial')}.")
    head = (*varied, *(f"{key} (result)" if key in varied else key for key in shown))
    return Table("trials", "The trials and their results.", head, body[:MOST_ROWS], " ".join(notes))


def rows(entries: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Names and values, for a table of settings."""
    return tuple((key, cell(value)) for key, value in entries.items())


def split(configs: Sequence[dict[str, Any]]) -> tuple[list[str], dict[str, Any]]:
    """The names of the fields that differ between the configs, and the fields that do not, with their values."""
    varied: list[str] = []
    fixed: dict[str, Any] = {}
    for key in keys(configs):
        values = {json.dumps(config[key], sort_keys=True) if key in config else None for config in configs}
        if len(values) == 1:
            fixed[key] = configs[0][key]
        else:
            varied.append(key)
    return varied, fixed


def keys(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """All keys in the order in which they come first."""
    return list(dict.fromkeys(key for entry in entries for key in entry))


def order(record: Record) -> list[tuple[int, float, str]]:
    """Sorts trials by their configs: numbers by size, everything else by its text."""
    values = record.config.values()
    return [(0, float(value), "") if is_size(value) else (1, 0.0, repr(value)) for value in values]


def is_size(value: Any) -> bool:
    """A number that a float can hold."""
    return isinstance(value, (int, float)) and abs(value) < 1e300


def is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def cell(value: Any) -> str:
    return number(value) if value is None or is_scalar(value) else f"({type(value).__name__} of {len(value)})"
