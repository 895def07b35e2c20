"""States divided over the ranks of a process group: sums, maxima and decisions that all ranks share.

A solver sees the columns of its own rank. Whatever it decides by (norms, inner products, "is anything not finite") goes through
the functions below, so that every rank has the same numbers and takes the same way. Without a group they cost a look at an
attribute.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from steadygrad.failure import SteadyStateError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Shards:
    """The group over which a state is divided, and how many numbers a problem has on all ranks together."""

    group: Any
    columns: int
    device: torch.device


class _Thread(threading.local):
    """What holds for the solve at hand, in each thread. (torch.compile traces this, and no ContextVar.)"""

    shards: Shards | None = None
    to_meet: bool = False
    """Whether the ranks have still to meet, so that an error must be told to the others."""


_now = _Thread()


def current() -> Shards | None:
    """The shards of the solve at hand; None for a state that is whole."""
    return _now.shards


class sharing:  # noqa: N801, as a context of contextlib would be called, at a third of its cost
    """A context in which sums and decisions are those of all ranks. A solve inside F sets its own, or None."""

    __slots__ = ("_before", "_shards")

    def __init__(self, shards: Shards | None) -> None:
        self._shards = shards

    def __enter__(self) -> None:
        self._before, _now.shards = _now.shards, self._shards

    def __exit__(self, *error: object) -> None:
        _now.shards = self._before


def total(found: Tensor) -> Tensor:
    """The sum over all ranks, taken in float64, the same bits on each; without a group what was given."""
    shards = _now.shards
    if shards is None:
        return found
    summed = found.detach().to(torch.float64, copy=True)
    _reduce(summed, "SUM", shards)
    return summed.to(found.dtype)


def greatest(found: Tensor) -> Tensor:
    """The maximum over all ranks, where NaN counts as infinite; without a group what was given."""
    shards = _now.shards
    if shards is None:
        return found
    largest = found.detach().nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).contiguous().clone()
    _reduce(largest, "MAX", shards)
    return largest


def somewhere(condition: bool) -> bool:
    """Whether a condition holds on any rank."""
    shards = _now.shards
    if shards is None:
        return condition
    return bool(greatest(torch.tensor([float(condition)], device=shards.device)))


def everywhere(condition: bool) -> bool:
    """Whether a condition holds on all ranks."""
    return not somewhere(not condition)


def rows_everywhere(condition: Tensor) -> Tensor:
    """For each row, whether a condition holds on all ranks."""
    return condition if _now.shards is None else greatest((~condition).double()) == 0


def of_first(number: int) -> int:
    """The number that the first rank has, for draws that all must share."""
    shards = _now.shards
    if shards is None:
        return number
    first = torch.distributed.get_rank(shards.group) == 0
    return int(total(torch.tensor([float(number) if first else 0.0], dtype=torch.float64, device=shards.device)))


def columns_of_all(columns: int) -> int:
    """How many numbers a problem has, given how many of them are here."""
    shards = _now.shards
    return columns if shards is None else shards.columns


def needed_by_all(h: Tensor) -> Tensor:
    """A state that enters F with a graph: where it is divided, one that needs a gradient, on every rank.

    A collective is differentiated by all ranks or by none. Where what needs a gradient is on some ranks alone, those would wait
    for the others in the backward pass.
    """
    if _now.shards is None or not torch.is_grad_enabled() or h.requires_grad:
        return h
    return h.detach().requires_grad_()


def _reduce(tensor: Tensor, operation: str, shards: Shards) -> None:
    torch.distributed.all_reduce(tensor, getattr(torch.distributed.ReduceOp, operation), shards.group)


def told_to_all(function: Callable[P, R]) -> Callable[P, R]:
    """For calls with `group=`: an error on one rank before the ranks have met is raised on all; none is left waiting."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        group: Any = kwargs.get("group")
        if group is None:
            return function(*args, **kwargs)
        check_group(group)
        before, _now.to_meet = _now.to_meet, True
        try:
            return function(*args, **kwargs)
        except Exception:
            if _now.to_meet:
                _gather(group, [1, 0, 0], _device_of(group))
            raise
        finally:
            _now.to_meet = before

    return call


def meet(group: Any, settings: str, columns: int, device: torch.device) -> Shards | None:
    """Compare what the ranks are about to do. They go on together, or all raise; None without a group."""
    if group is None:
        return None
    _now.to_meet = False
    found = _gather(group, [0, zlib.crc32(settings.encode()), columns], device)
    failed = [rank for rank, (error, _, _) in enumerate(found) if error]
    if failed:
        raise SteadyStateError(f"rank {failed[0]} of the group raised an error before the solve began; its own message says why.")
    if len({mark for _, mark, _ in found}) > 1:
        raise SteadyStateError(
            f"the ranks of the group call steady_state with different settings; this one has {settings}. The nesting, dtype and "
            "batch of the state, the methods and the other arguments must be the same on all; only the numbers of each problem "
            "are divided."
        )
    if min(here for _, _, here in found) < 2:
        raise ValueError(
            f"every rank must hold at least two numbers of each problem; the ranks hold {[here for _, _, here in found]}."
        )
    return Shards(group, sum(here for _, _, here in found), device)


def check_group(group: Any) -> None:
    """Refuse what is no process group, or one that this process is not in."""
    if not torch.distributed.is_available():
        raise ValueError("group=... needs a torch that was built with torch.distributed.")
    if not isinstance(group, torch.distributed.ProcessGroup):
        raise TypeError(
            f"group must be a torch.distributed.ProcessGroup, such as torch.distributed.group.WORLD after init_process_group(), "
            f"or mesh.get_group() of a device mesh of one dimension; got {group!r:.80}."
        )


def _device_of(group: Any) -> torch.device:
    """A device on which the group can exchange a few numbers."""
    devices = group._device_types
    return torch.device("cpu") if torch.device("cpu") in devices else devices[0]


def _gather(group: Any, numbers: list[int], device: torch.device) -> list[list[int]]:
    """The numbers of all ranks."""
    mine = torch.tensor(numbers, dtype=torch.int64, device=device)
    all_of_them = [torch.empty_like(mine) for _ in range(group.size())]
    torch.distributed.all_gather(all_of_them, mine, group)
    return torch.stack(all_of_them).tolist()


def sum_gradients(parameters: Iterable[Tensor], group: Any) -> None:
    """Sum `.grad` of parameters that all ranks share over the group, in place.

    With `steady_state(..., group=group)` every rank's backward pass gives the part of the gradient that comes from its own
    piece of F and of the loss; the gradient of the sum of all losses is the sum of these parts. Call it after `backward()` and
    before the optimiser, on every rank, with the same parameters in the same order; the parameters of one rank alone (embeddings
    of its own nodes) are left out. (DistributedDataParallel averages instead; do not use both.) One all-reduce a dtype. A
    parameter without a gradient on some ranks counts as zero there, and one without any stays without.

    >>> import torch.distributed as dist, steadygrad as sg
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun starts several
    >>> W, x = torch.nn.Parameter(0.1 * torch.eye(3)), torch.ones(3)
    >>> solution = sg.steady_state(lambda h: torch.tanh(W @ h + x), torch.zeros(3), group=dist.group.WORLD)
    >>> solution.value.sum().backward()
    >>> sg.sum_gradients([W], dist.group.WORLD)
    >>> dist.destroy_process_group()
    """
    check_group(group)
    shared = [p for p in parameters if p.requires_grad]
    for p in shared:
        if p.grad is not None and p.grad.layout is not torch.strided:
            raise TypeError(f"sum_gradients adds dense gradients; got one of layout {p.grad.layout}, shape {tuple(p.shape)}.")
    what = str([(tuple(p.shape), p.dtype) for p in shared])
    device = shared[0].device if shared else _device_of(group)
    found = _gather(group, [zlib.crc32(what.encode())], device)
    if len({mark for (mark,) in found}) > 1:
        raise ValueError(f"sum_gradients was given different parameters on different ranks; here: {what:.500}.")
    for dtype in dict.fromkeys(p.dtype for p in shared):
        _sum_of_dtype([p for p in shared if p.dtype == dtype], group)


def _sum_of_dtype(shared: list[Tensor], group: Any) -> None:
    """All gradients in one all-reduce, with a number for each that says whether it is there."""
    with torch.no_grad():
        there = torch.stack([p.new_tensor(p.grad is not None) for p in shared])
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in shared]
        flat = torch.cat([there, *parts])
        torch.distributed.all_reduce(flat, group=group)
        counts, *sums = flat.split([len(shared), *(p.numel() for p in shared)])
        for p, count, summed in zip(shared, counts.tolist(), sums, strict=True):
            if p.grad is not None:
                p.grad.copy_(summed.view_as(p))
            elif count:
                p.grad = summed.view_as(p).clone()
