"""Markdown tables, and putting them between the marks of a page.

A mark is a line <!-- numbers: NAME -->; what stands between it and the next <!-- end --> is replaced.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("\u00a0", " ") for cell in line) + " |" for line in lines)


def fill(parts: dict[str, str]) -> None:
    """Put the parts into the page that is the script's second argument; without one, print them."""
    if len(sys.argv) < 3:
        print("\n\n".join(f"<!-- numbers: {name} -->\n{text}\n<!-- end -->" for name, text in parts.items()))
        return
    page = Path(sys.argv[2])
    text = page.read_text()
    for name, part in parts.items():
        text, count = re.subn(
            rf"(<!-- numbers: {name} -->\n).*?(<!-- end -->)", lambda m, part=part: f"{m[1]}{part}\n{m[2]}", text, flags=re.S
        )
        print(f"{name}: {'replaced' if count else 'no such mark'}")
    page.write_text(text)
