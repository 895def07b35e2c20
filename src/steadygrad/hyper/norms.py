"""BatchNorm and InstanceNorm whose running statistics have a derivative."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

Named = dict[str, Tensor]
"""Tensors of a module by name."""


def keeps_statistics(part: nn.Module) -> bool:
    known = isinstance(part, _BatchNorm) and not isinstance(part, nn.SyncBatchNorm)
    return known and part.training and bool(part.track_running_stats) and part.running_mean is not None


@contextmanager
def watched(name: str, part: nn.Module, statistics: Named, buffers: Named) -> Generator[None]:
    """Let a BatchNorm part update its running statistics in `statistics`, with their derivative, and not in place."""
    norm = cast("_BatchNorm", part)
    keys = [f"{name}.{key}".lstrip(".") for key in ("running_mean", "running_var", "num_batches_tracked")]

    def update(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not norm.training:
            return
        if not torch.is_grad_enabled():
            raise ValueError(_HIDDEN.format(name or "the model"))
        x: Tensor = args[0] if args else kwargs["input"]
        buffers[keys[2]].add_(1)
        weight = norm.momentum if norm.momentum is not None else 1 / buffers[keys[2]].to(x.dtype)
        dims = [d for d in range(x.dim()) if d != 1]
        seen = (x.mean(dims), x.var(dims, correction=1))
        for key, new in zip(keys, seen, strict=False):
            statistics[key] = (1 - weight) * statistics[key] + weight * new

    handle = norm.register_forward_pre_hook(update, with_kwargs=True)
    norm.track_running_stats = False
    try:
        yield
    finally:
        norm.track_running_stats = True
        handle.remove()


class Differentiable(TorchFunctionMode):
    """Lets BatchNorm and InstanceNorm pass gradients to their running statistics, which torch's own refuse."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        signature = _SIGNATURES.get(func)
        if signature is None:
            return func(*args, **(kwargs or {}))
        given = signature.bind(*args, **(kwargs or {}))
        given.apply_defaults()
        return _normalised(func, *given.arguments.values())


_SIGNATURES = {func: inspect.signature(func) for func in (functional.batch_norm, functional.instance_norm)}
"""Both take the input, its running mean and variance, weight, bias, whether to use the input's own statistics, momentum, eps."""


def _normalised(func: Any, x: Tensor, mean: Any, variance: Any, weight: Any, bias: Any, own: bool, *rest: float) -> Tensor:
    """The input normalised by its own or by running statistics, these with a derivative where they need one."""
    if own and func is functional.instance_norm:
        return func(x, mean, variance, weight, bias, own, *rest)
    if mean is None or variance is None or not mean.requires_grad:
        return functional.batch_norm(x, mean, variance, weight, bias, own, *rest)
    if own:  # in the objective, whose statistics nobody sees again
        return functional.batch_norm(x, None, None, weight, bias, own, *rest)
    shape = [1, -1] + [1] * (x.dim() - 2)
    scale = (variance + rest[-1]).rsqrt() if weight is None else weight * (variance + rest[-1]).rsqrt()
    centred = (x - mean.view(shape)) * scale.view(shape)
    return centred if bias is None else centred + bias.view(shape)


_HIDDEN = (
    "{} updates its running statistics under no_grad in the loss: they follow the weights, but without a derivative. Put the "
    "model in eval mode for that pass."
)
