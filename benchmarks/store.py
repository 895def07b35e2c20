"""The results file: one record a row, written after every row so that a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
Record = dict[str, Any]


def read(path: Path = RESULTS) -> dict[str, Record]:
    """All records by "benchmark/row"; none where there is no file yet."""
    return json.loads(path.read_text()) if path.exists() else {}


def put(record: Record, path: Path = RESULTS) -> None:
    """Add a record, or put it in the place of the one it repeats. The file is whole at any moment."""
    records = read(path) | {f"{record['benchmark']}/{record['row']}": record}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(records, indent=1, ensure_ascii=False, allow_nan=True) + "\n")
    os.replace(draft, path)


def of(benchmark: str, records: dict[str, Record]) -> list[Record]:
    """The records of one benchmark that hold figures, in the order in which they were measured."""
    return [record for record in records.values() if record["benchmark"] == benchmark and "figures" in record]


def is_done(record: Record | None, effort: str, version: str) -> bool:
    """Whether a row need not be measured again: it has figures, of this effort and of this version of steadygrad."""
    return bool(record) and "figures" in record and record["effort"] == effort and record["versions"]["steadygrad"] == version
