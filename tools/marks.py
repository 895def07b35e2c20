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


def fill(parts: dict[str, str], page: Path | None) -> None:
    """Put every part between its marks on the page, which has no others; without a page, print them."""
    if page is None:
        print("\n\n".join(f"<!-- numbers: {name} -->\n{text}\n<!-- end -->" for name, text in parts.items()))
        return
    page.write_text(filled(page, parts))


def filled(page: Path, parts: dict[str, str]) -> str:
    """The text of the page with every part between its marks."""
    text = page.read_text()
    marks = re.findall(r"<!-- numbers: (.+?) -->(?=\n(?:(?!<!-- numbers:)[\s\S])*?<!-- end -->)", text)
    if sorted(marks) != sorted(parts):
        raise SystemExit(f"{page} has the marks {sorted(marks)}, each with its end; the numbers are {sorted(parts)}.")
    for name, part in parts.items():
        text = re.sub(
            rf"(<!-- numbers: {name} -->\n).*?(<!-- end -->)", lambda m, part=part: f"{m[1]}{part}\n{m[2]}", text, flags=re.S
        )
    return text


def arguments() -> tuple[Path, Path | None]:
    """The records folder and the page, from the command line."""
    if len(sys.argv) not in (2, 3):
        raise SystemExit(f"python {sys.argv[0]} RECORDS [PAGE]")
    return Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else None
