"""What is asked of workers, what is heard of them, and what every crew of them can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

Say = Callable[[Any], None]
"""say(message): how a call tells whoever waits for it how far it is. The message must be picklable."""


@dataclass(frozen=True)
class Call:
    """function(say, *arguments), to be called once in a worker. What is heard of it comes with its name."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Began:
    """The call has been given to a worker, which is free for it. After a loss it is so again."""


@dataclass(frozen=True)
class Said:
    """What the call itself said of its progress."""

    message: Any


@dataclass(frozen=True)
class Again:
    """The worker was lost before the call ended; the call starts again in another one."""

    reason: str
    attempt: int
    """The number of this new attempt; the first of all was 1."""


@dataclass(frozen=True)
class Returned:
    """The call has ended."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """The call has ended with an error, or could not be begun in the worker."""

    error: str
    """The traceback."""


@dataclass(frozen=True)
class Lost:
    """The worker was lost before the call ended, and the call is not tried again."""

    reason: str


Event = Began | Said | Again | Returned | Raised | Lost
"""Every call that was started ends with exactly one of Returned, Raised and Lost."""


class Crew(Protocol):
    """Workers that calls are given to. Leaving its `with` by an error ends the calls under way; they are not heard of again."""

    def __enter__(self) -> Crew: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    @property
    def room(self) -> bool:
        """Whether one more call may be started now."""
        ...

    def start(self, call: Call) -> None:
        """Give a call to a worker. Only where there is room."""
        ...

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        """What has happened, by the names of the calls; waits for something to happen, but no longer than that."""
        ...
