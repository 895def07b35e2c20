"""Calls on a Ray cluster: Ray places them, moves what they need and return, and says which were lost."""

from __future__ import annotations

import importlib
import math
import pickle
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from steadygrad.calls.call import Again, Began, Call, Event, Lost, Raised, Said
from steadygrad.calls.local import cores
from steadygrad.calls.processes import ONE_THREAD
from steadygrad.calls.session import ClusterError, check_address, connected
from steadygrad.calls.worker import perform


@dataclass(frozen=True)
class Ray:
    """A Ray cluster, and what a call takes of it.

    Every machine of the cluster needs this version of steadygrad, and whatever the calls import. Calls compute with one torch
    thread, whatever `cpus` says, so that results do not depend on it; more than one keeps others from the machine's memory.

    >>> Ray(address="10.0.0.1:6379", gpus=0.5)
    Ray(address='10.0.0.1:6379', cpus=1.0, gpus=0.5, retries=3)
    """

    address: str | None = None
    """host:port of the cluster's head, or "auto" on a machine of the cluster. None: the caller's own connection, or RAY_ADDRESS,
    or else a Ray of one node, started on this machine for the time, which listens on 127.0.0.1 alone and reports to nobody."""
    cpus: float = 1.0
    """Cores that Ray reserves for a call."""
    gpus: float = 0.0
    """GPUs that Ray reserves for a call, of which it then sees no others; a fraction shares one, none hides them all."""
    retries: int = 3
    """How often a call is begun again whose worker or machine was lost. Not for what a call raises."""

    def __post_init__(self) -> None:
        if self.address is not None:
            check_address(self.address)
        for name in ("cpus", "gpus"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}; it must be a number that is not negative.")
        if self.cpus == 0 and self.gpus == 0:
            raise ValueError("cpus and gpus are both 0; Ray would then run all calls at once on every machine.")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus is {self.gpus}; Ray gives fractions of one GPU only, or whole ones.")
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}; it must not be negative.")


@dataclass
class Attempt:
    """A call that is on the cluster."""

    call: Call
    packed: Any
    number: int = 1


@dataclass
class RayCrew:
    """Calls on a Ray cluster. Without a limit all calls are handed to Ray at once, which queues them in their order."""

    cluster: Ray
    limit: int | None
    running: dict[Any, Attempt] = field(default_factory=dict[Any, Attempt])
    """By the reference that Ray gives for what will be returned."""
    stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> RayCrew:
        here = cores() if self.limit is None else math.ceil(self.limit * self.cluster.cpus)
        self.ray, ours = self.stack.enter_context(connected(self.cluster.address, here))
        try:
            self.check_resources(ours)
            self.messages = self.queue()
            options: dict[str, Any] = {"num_cpus": self.cluster.cpus, "num_gpus": self.cluster.gpus, "max_retries": 0}
            if not ours:  # what we started ourselves has these variables from us
                options["runtime_env"] = {"env_vars": ONE_THREAD}
            self.remote = self.ray.remote(**options)(on_the_cluster)
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self.stack:
            for reference in self.running:
                self.ray.cancel(reference, force=True)
            self.messages.shutdown(force=True)

    def check_resources(self, ours: bool) -> None:
        """Refuse or warn where no machine has what a call needs: Ray would wait without a word."""
        needed = {"CPU": self.cluster.cpus, "GPU": self.cluster.gpus}
        alive = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        if any(all(node.get(name, 0) >= amount for name, amount in needed.items()) for node in alive):
            return
        has = "; ".join(f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in alive)
        lacking = f"no machine has the {needed['CPU']:g} cores and {needed['GPU']:g} GPUs that a call is to have; there are {has}"
        if ours:
            raise ClusterError(f"{lacking}.")
        warnings.warn(f"{lacking}. Ray waits until one joins the cluster.", stacklevel=4)

    def queue(self) -> Any:
        """Where calls say how far they are. It lives on this machine, so that the loss of another does not take it away."""
        here = self.ray.get_runtime_context().get_node_id()
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        place = strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        queues: Any = importlib.import_module("ray.util.queue")
        return queues.Queue(actor_options={"num_cpus": 0, "scheduling_strategy": place})

    @property
    def room(self) -> bool:
        return self.limit is None or len(self.running) < self.limit

    def start(self, call: Call) -> None:
        packed = self.ray.cloudpickle.dumps((call.function, call.arguments))
        self.submit(Attempt(call, packed))

    def submit(self, attempt: Attempt) -> None:
        options: dict[str, Any] = {"name": f"steadygrad {attempt.call.name}"}
        self.running[self.remote.options(**options).remote(attempt.packed, attempt.call.name, self.messages)] = attempt

    def wait(self, seconds: float) -> list[tuple[str, Event]]:
        try:
            ready = self.over(seconds)
            heard: list[tuple[str, Event]] = self.messages.get_nowait_batch(self.messages.qsize())
        except self.ray.exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster is lost: {error}") from error
        return heard + [self.end(reference) for reference in ready]

    def over(self, seconds: float) -> list[Any]:
        """The calls that are over, all of them; waits for the first."""
        everything = list(self.running)
        if not everything:  # Ray waits for something only
            time.sleep(seconds)
            return []
        self.ray.wait(everything, timeout=seconds)
        ready, _ = self.ray.wait(everything, num_returns=len(everything), timeout=0)
        return ready

    def end(self, reference: Any) -> tuple[str, Event]:
        """What came of a call that Ray says is over."""
        attempt = self.running.pop(reference)
        name = attempt.call.name
        try:
            return name, pickle.loads(self.ray.get(reference))
        except self.ray.exceptions.RayTaskError as error:  # our own function could not be loaded there
            return name, Raised(str(error))
        except self.ray.exceptions.RayError as error:
            reason = f"The worker was lost on the Ray cluster ({type(error).__name__}: {str(error).strip()})"
        if attempt.number > self.cluster.retries:
            return name, Lost(reason)
        self.submit(Attempt(attempt.call, attempt.packed, attempt.number + 1))
        return name, Again(reason, attempt.number + 1)


def on_the_cluster(packed: bytes, name: str, messages: Any) -> bytes:
    """What a worker of the cluster does. Nothing waits for what is said: it is no part of the time that a call takes, and where
    nobody listens any more, what the call returns still goes its own way."""

    def tell(event: Event) -> None:
        messages.actor.put_nowait.remote((name, event))

    tell(Began())
    return perform(packed, lambda message: tell(Said(message)))
