"""A tuning on disk: everything that decides how it goes on, without pickled code, written atomically."""

from __future__ import annotations

import io
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from steadygrad.files import UNFINISHED, write_atomically

VERSION = 3


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint in the place of the one before; a kill leaves at most one unfinished file beside it."""
    saved = {"version": VERSION, **portable(content)}
    write_atomically(path, lambda file: torch.save(saved, file), beside=path.with_name(f".{path.name}{UNFINISHED}"))


def prepare(path: Path) -> None:
    """Make the folder, and refuse a place where nothing can be written, before any work is done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"checkpoint={str(path)!r}: its folder cannot be made ({error}); name another file.") from error
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        reason = "is a folder" if path.is_dir() else "is in a folder that cannot be written to"
        raise ValueError(f"checkpoint={str(path)!r} {reason}; name another file.")


def load(path: Path, signature: dict[str, Any]) -> dict[str, Any] | None:
    """What was saved, or None if nothing was; another tuning's file is refused."""
    if not path.exists():
        return None
    try:
        content: Any = torch.load(path, weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} is no checkpoint of a tuning ({error}); delete it or name another file.") from error
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise ValueError(f"{path} is no checkpoint of this version of steadygrad; delete it or name another file.")
    changed = [key for key, value in signature.items() if content["signature"].get(key) != value]
    if changed:
        was = {key: content["signature"].get(key) for key in changed}
        now = {key: signature[key] for key in changed}
        raise ValueError(
            f"{path} belongs to another tuning: {was!s:.500} then, {now!s:.500} now. Name another file, or restore the settings."
        )
    return content


def random_states() -> dict[str, Any]:
    """The states of torch's, Python's and, if it is loaded, numpy's global generators."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state(legacy=True)
        states["numpy"] = [kind, keys.tolist(), *rest]
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(_tuples(states["python"]))
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])
    numpy: Any = sys.modules.get("numpy")
    if "numpy" in states and numpy is not None:
        numpy.random.set_state(tuple(states["numpy"]))


def _tuples(nested: Any) -> Any:
    return tuple(_tuples(item) for item in nested) if isinstance(nested, (list, tuple)) else nested


def portable(content: Any) -> Any:
    """The same in plain dicts, lists, tuples, tensors and numbers, without classes that `load` would refuse."""
    if isinstance(content, Tensor):
        return content.detach().as_subclass(Tensor)
    if isinstance(content, dict):
        return {key: portable(item) for key, item in cast("dict[Any, Any]", content).items()}
    if isinstance(content, (list, tuple)):
        items = [portable(item) for item in cast("Sequence[Any]", content)]
        return items if isinstance(content, list) else tuple(items)
    numpy: Any = sys.modules.get("numpy")
    return content.item() if numpy is not None and isinstance(content, numpy.generic) else content


def check_readable(content: dict[str, Any]) -> None:
    """Refuse now what could be written but not read again. For each key of the content."""
    for name, part in content.items():
        file = io.BytesIO()
        try:
            torch.save(portable(part), file)
            file.seek(0)
            torch.load(file, weights_only=True)
        except Exception as error:
            raise TypeError(
                f"the state of {name} cannot be kept in a checkpoint ({str(error).splitlines()[0]:.200}); take one whose "
                "state_dict() is of tensors, numbers and strings, or tune without checkpoint."
            ) from error
