"""What the sections of all experiments share: a trial with a result, and the two modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MODES = ("as-published", "corrected")
TITLES = {"as-published": "As published", "corrected": "Corrected"}


@dataclass(frozen=True)
class Trial:
    """A record that has a result."""

    config: dict[str, Any]
    result: dict[str, Any]
    measured: dict[str, Any]

    @property
    def method(self) -> str:
        return self.config["method"]

    @property
    def seed(self) -> int:
        return self.config["seed"]

    def seen(self, name: str) -> list[Any]:
        """What was measured at each validation; None where it could not be."""
        return self.result["validation"][name]
