"""An extension of griffe: the examples of docstrings, lines after >>>, become code blocks of the API reference.

In markdown >>> is a quotation in a quotation in a quotation.
"""

from __future__ import annotations

from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Fence the examples of every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with each example, from its first >>> to the next blank line, between ```pycon and ```.

    >>> fenced("It adds.\\n\\n>>> 1 + 1\\n2\\n\\nAlways.").splitlines()
    ['It adds.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'Always.']
    """
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if not inside and line.startswith(">>>"):
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join(lines[:-1])
