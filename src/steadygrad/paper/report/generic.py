"""Tables of settings, and the section of an experiment that nobody wrote one for: its trials and their numbers, as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from steadygrad.paper.records import Record
from steadygrad.paper.report.section import Section, Table
from steadygrad.paper.report.text import number

Config = Mapping[str, Any]


def section(records: Sequence[Record]) -> Section:
    """A row a trial: what differs between the configs, then every result that is one number or word."""
    name, configs = records[0].experiment, [record.config for record in records]
    done = [(record.config, record.result) for record in records if record.result is not None]
    varied = [key for key in keys(configs) if key not in alike(configs)]
    shown = [key for key in keys([result for _, result in done]) if any(is_scalar(result.get(key)) for _, result in done)]
    rows = [(*(cell(config.get(key)) for key in varied), *(cell(result.get(key)) for key in shown)) for config, result in done]
    trials = Table("trials", "The trials and their results.", (*varied, *shown), tuple(rows))
    return Section(name, name, (), (trials,) if rows else (), settings([("value", alike(configs))]), f"steadygrad run {name}")


def settings(columns: Sequence[tuple[str, Config]], without: Sequence[str] = ()) -> Table:
    """Settings side by side, each with its title."""
    names = [name for name in keys([column for _, column in columns]) if name not in without]
    rows = tuple((name, *(cell(column.get(name)) for _, column in columns)) for name in names)
    return Table("settings", "Settings.", ("setting", *(title for title, _ in columns)), rows)


def alike(configs: Sequence[Config]) -> dict[str, Any]:
    """The fields that do not differ between the configs, with their values."""
    known = [{key: json.dumps(value, sort_keys=True) for key, value in config.items()} for config in configs]
    return {key: value for key, value in (configs[0] if configs else {}).items() if len({of.get(key) for of in known}) == 1}


def keys(entries: Sequence[Config]) -> list[str]:
    """All keys in the order in which they come first."""
    return list(dict.fromkeys(key for entry in entries for key in entry))


def is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def cell(value: Any) -> str:
    return number(value) if value is None or is_scalar(value) else f"({type(value).__name__} of {len(value)})"
