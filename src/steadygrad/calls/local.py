"""Calls in processes on this machine."""

from __future__ import annotations

import os
import pickle
from multiprocessing import connection
from types import TracebackType

from steadygrad.calls.call import Began, Call, Event, Lost, Said
from steadygrad.calls.processes import Process, quiet_start, spawn


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalCrew:
    """At most so many processes, each started when it is first needed. A call whose process dies is lost."""

    def __init__(self, workers: int) -> None:
        self.limit = workers
        self.idle: list[Process] = []
        self.busy: dict[str, Process] = {}
        self.news: list[tuple[str, Event]] = []

    def __enter__(self) -> LocalCrew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        everyone = [*self.idle, *self.busy.values()]
        for process in everyone:
            process.stop(kill=kind is not None)
        for process in everyone:
            process.join()

    @property
    def room(self) -> bool:
        return len(self.busy) < self.limit

    def start(self, call: Call) -> None:
        packed = pickle.dumps((call.function, call.arguments))
        self.idle = [process for process in self.idle if process.process.is_alive()]
        if not self.idle:
            with quiet_start():
                self.idle.append(spawn())
        process = self.busy[call.name] = self.idle.pop()
        process.give(packed)
        self.news.append((call.name, Began()))

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        ends = [end for process in self.busy.values() for end in (process.pipe, process.process.sentinel)]
        connection.wait(ends, 0 if self.news else seconds)
        for name, process in list(self.busy.items()):
            events = process.receive()
            if events is None:
                events = [self.bury(process)]
            elif events and not isinstance(events[-1], Said):
                self.idle.append(process)
            if events and not isinstance(events[-1], Said):
                del self.busy[name]
            self.news += [(name, event) for event in events]
        heard, self.news = self.news, []
        return heard

    def bury(self, process: Process) -> Lost:
        process.stop(kill=True)
        process.join()
        return Lost(process.obituary())
