"""One JSON file a trial: folder/<experiment>/<trial>.json, whole or not there at all."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from steadygrad.files import UNFINISHED, write_atomically

SCHEMA = 1
FIELDS = ("schema", "experiment", "config", "result", "error", "measured", "environment")
NONFINITE = "$float"  # JSON has no NaN: {"$float": "nan"} stands for it, likewise "inf" and "-inf"
LOCKS = ".locks"  # in which the engine marks what is running; see engine/locks.py
CHECKPOINTS = ".checkpoints"  # how far running trials are
REPORT = ("report.html", "figures")  # what `steadygrad report --out <folder>/report.html` puts beside the records
BESIDES = (LOCKS, ".claims", CHECKPOINTS)  # no records; .claims is what locks were called before


@dataclass(frozen=True)
class Record:
    """What one trial was (`experiment`, `config`) and what came of it: `result` is reproducible, `measured` is not."""

    experiment: str
    config: dict[str, Any]
    result: dict[str, Any] | None
    error: str | None
    measured: dict[str, Any] = field(default_factory=dict[str, Any])
    environment: dict[str, Any] = field(default_factory=dict[str, Any])
    schema: int = SCHEMA

    @property
    def trial(self) -> str:
        return trial_id(self.experiment, self.config)

    @property
    def done(self) -> bool:
        return self.result is not None


@dataclass(frozen=True)
class Stranger:
    """A file in a run folder that is not a record, and why not."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Collection:
    records: list[Record]
    strangers: list[Stranger]


def trial_id(experiment: str, config: dict[str, Any]) -> str:
    """16 hex digits of SHA-256 over the canonical JSON of (experiment, config): the same on every machine and in any order."""
    text = json.dumps([experiment, plain(config, "config")], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(folder: Path, record: Record) -> Path:
    """Write the record, whole or not at all. A record of the same trial is replaced."""
    path = place(folder, record.experiment, record.trial)
    text = dumps(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    return path


def read(folder: Path, experiment: str | None = None) -> Collection:
    """All records under the folder, or of one experiment in it, sorted by trial, and every file that is none, with the reason."""
    records: list[Record] = []
    strangers: list[Stranger] = []
    for path, reason in files(folder, experiment):
        found = Stranger(path, reason) if reason else load(path)
        if isinstance(found, Record):
            records.append(found)
        elif found is not None:
            strangers.append(found)
    records.sort(key=lambda record: (record.experiment, record.trial))
    return Collection(records, strangers)


def load(path: Path) -> Record | Stranger | None:
    """The record in one file, or why it is none; None where there is no such file."""
    try:
        record = loads(path.read_text(encoding="utf-8"))
        record.trial.encode()
    except FileNotFoundError:
        return None
    except OSError as error:
        return Stranger(path, f"cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return Stranger(path, str(error))
    if path.parent.name != record.experiment:
        return Stranger(path, f"holds a record of {record.experiment!r} in the folder of {path.parent.name!r}")
    if path.stem != record.trial:
        return Stranger(path, f"its content belongs to trial {record.trial}: renamed, or edited by hand")
    return record


def files(folder: Path, experiment: str | None) -> Iterator[tuple[Path, str]]:
    """Every file that may be a record, with an empty reason, and everything that cannot be one, with the reason."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; give the folder in which the records are, or shall be.")
    for path in sorted(folder.iterdir()) if folder.exists() else []:
        if experiment not in (None, path.name) or path.name in REPORT:
            continue
        if not path.is_dir():
            yield path, "lies outside the folder of an experiment"
            continue
        for inner in sorted(path.iterdir()):
            if inner.name not in BESIDES:
                yield inner, kind(inner)


def kind(path: Path) -> str:
    if path.is_dir():
        return "a folder where records are expected"
    if not path.is_file():
        return "not a regular file"
    if path.name.endswith(UNFINISHED):
        return "a record that is being written, or was when its run was killed"
    return "" if path.suffix == ".json" else "not a record: its name does not end in .json"


def place(folder: Path, experiment: str, trial: str) -> Path:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", experiment):
        raise ValueError(f"experiment is {experiment!r}; it names a folder, so use small letters, digits, - and _ only.")
    return folder / experiment / f"{trial}.json"


def remove_unfinished(folder: Path, experiment: str, trial: str) -> None:
    """Clear away what a killed run left of this trial; only for whoever holds its lock."""
    for path in place(folder, experiment, trial).parent.glob(f".{trial}.*{UNFINISHED}"):
        path.unlink(missing_ok=True)


def dumps(record: Record) -> str:
    """Strict JSON, one line a field. Floats are written by repr, which reads back to the same bits."""
    problem = fault({name: getattr(record, name) for name in FIELDS})
    if problem:
        raise ValueError(f"not a record: {problem}")
    lines = [f'"{name}": {json.dumps(plain(getattr(record, name), name), allow_nan=False)}' for name in FIELDS]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def loads(text: str) -> Record:
    """The inverse of `dumps`. ValueError with the reason for anything else."""
    try:
        content = json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON, or only half of it: {error}") from None
    problem = fault(content)
    if problem:
        raise ValueError(f"not a record: {problem}")
    entries = {name: revive(content[name]) for name in FIELDS}
    problem = fault(entries)  # again: a {"$float": "nan"} in place of a result is no result
    if problem:
        raise ValueError(f"not a record: {problem}")
    return Record(**entries)


def refuse_constant(name: str) -> float:
    raise ValueError(f"not strict JSON: {name} stands in it")


def fault(content: Any) -> str:
    """Why this cannot be a record; empty where it can."""
    if not isinstance(content, dict):
        return f"a JSON object is expected, got {type(content).__name__}"
    entries = cast(dict[str, Any], content)
    if set(entries) != set(FIELDS):
        return f"the fields are {sorted(entries)}, expected {sorted(FIELDS)}"
    if type(entries["schema"]) is not int or entries["schema"] != SCHEMA:
        return f"its schema is {entries['schema']!r}, this version of steadygrad reads {SCHEMA}"
    kinds = {"experiment": str, "config": dict, "result": (dict, type(None)), "error": (str, type(None))}
    for name, expected in {**kinds, "measured": dict, "environment": dict}.items():
        if not isinstance(entries[name], expected):
            return f"{name} is of type {type(entries[name]).__name__}"
    if (entries["result"] is None) == (entries["error"] is None):
        return "it must have either a result or an error"
    return ""


def plain(value: Any, where: str) -> Any:
    """The value as JSON can hold it: tuples as lists, NaN as {"$float": "nan"}. TypeError for what would not read back."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {NONFINITE: repr(float(value))}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(cast(list[Any], value))]
    if not isinstance(value, dict):
        raise TypeError(
            f"{where} is a {type(value).__name__}, which JSON cannot hold; give numbers, strings, lists or dicts (.tolist())."
        )
    entries = cast(dict[Any, Any], value)
    for key in entries:
        if not isinstance(key, str) or key == NONFINITE:
            raise TypeError(f"{where} has the key {key!r}; keys must be strings other than {NONFINITE!r}.")
    return {key: plain(item, f"{where}[{key!r}]") for key, item in entries.items()}


def revive(value: Any) -> Any:
    """The inverse of `plain`."""
    if isinstance(value, list):
        return [revive(item) for item in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    entries = cast(dict[str, Any], value)
    if NONFINITE in entries:
        if len(entries) > 1:
            raise ValueError(f"not a record: {NONFINITE} stands beside other keys")
        if entries[NONFINITE] not in ("nan", "inf", "-inf"):
            raise ValueError(f"not a record: {NONFINITE} is {entries[NONFINITE]!r}, expected nan, inf or -inf")
        return float(entries[NONFINITE])
    return {key: revive(item) for key, item in entries.items()}
