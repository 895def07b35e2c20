"""A tuning on disk: everything that decides how it goes on, without pickled code, written atomically."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadygrad.files import UNFINISHED, write_atomically
from steadygrad.state.tree import map_plain

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


def portable(content: Any) -> Any:
    """Content in plain dicts, lists, tuples, tensors and numbers, without classes that `load` would refuse."""
    return map_plain(_plain, content)


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach().as_subclass(Tensor)
    numpy: Any = sys.modules.get("numpy")
    return leaf.item() if numpy is not None and isinstance(leaf, numpy.generic) else leaf


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
