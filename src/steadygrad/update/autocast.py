"""F runs under the autocast of the place where its solve began; the solver's own arithmetic runs without."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch


class Autocast(NamedTuple):
    """The autocast that was on where a solve began.

    F needs it in every call: a backward pass usually runs outside of the autocast region, and a part of it calls F again.
    """

    device: str
    enabled: bool
    dtype: torch.dtype

    @classmethod
    def now(cls, device: torch.device) -> Autocast:
        return cls(device.type, torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type))

    @property
    def is_on(self) -> bool:
        """Whether it is what holds at present."""
        if torch.is_autocast_enabled(self.device) != self.enabled:
            return False
        return not self.enabled or torch.get_autocast_dtype(self.device) == self.dtype

    def again(self) -> AbstractContextManager[Any]:
        """A context in which it holds."""
        return torch.autocast(self.device, dtype=self.dtype, enabled=self.enabled)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A context for the arithmetic of solvers: autocast would do their products of vectors in half precision."""
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else _NOTHING


_NOTHING = nullcontext()
