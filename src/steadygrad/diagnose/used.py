"""What the user does already, so that it is not advised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steadygrad.solution import Solution


@dataclass(frozen=True)
class Used:
    """The methods in use, as far as they were told: by `forward=`, `gradient=`, or a Solution that was handed over."""

    forward: str = ""
    """The forward solver as code, such as `Picard(damping=0.5)`."""
    gradient: str = ""
    """The adjoint solver or the gradient method as code or by its short name."""

    @classmethod
    def of(cls, solution: Solution | None, forward: Any, gradient: Any) -> Used:
        adjoint = solution.adjoint if solution is not None else None
        told = gradient if isinstance(gradient, str) else "" if gradient is None else repr(gradient)
        return cls("" if forward is None else repr(forward), told or ("" if adjoint is None else adjoint.solver))

    def left(self, *options: tuple[str, str]) -> list[str]:
        """The texts of those options, (mark, text), whose mark is not in what is used."""
        everything = f"{self.forward} {self.gradient}".lower()
        return [text for mark, text in options if mark.lower() not in everything]


def joined(options: list[str], last: str) -> str:
    """“A, B, or C.” of the options that are left; `last` where none is."""
    if not options:
        return last
    head, tail = options[:-1], options[-1]
    text = f"{', '.join(head)}, or {tail}" if head else tail
    return f"{text[0].upper()}{text[1:]}."
