"""BatchNorm and InstanceNorm whose running statistics have a derivative."""

from __future__ import annotations

from collections.abc import Callable, Generator
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
        instead: Any = _INSTEAD.get(func, func)
        return instead(*args, **(kwargs or {}))


def _normalise(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if running_mean is None or running_var is None or not running_mean.requires_grad:
        return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if training:  # in the objective, whose statistics nobody sees again
        return functional.batch_norm(input, None, None, weight, bias, True, momentum, eps)
    shape = [1, -1] + [1] * (input.dim() - 2)
    scale = (running_var + eps).rsqrt() if weight is None else weight * (running_var + eps).rsqrt()
    centred = (input - running_mean.view(shape)) * scale.view(shape)
    return centred if bias is None else centred + bias.view(shape)


def _normalise_each(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if use_input_stats:
        return functional.instance_norm(input, running_mean, running_var, weight, bias, True, momentum, eps)
    return _normalise(input, running_mean, running_var, weight, bias, False, momentum, eps)


_INSTEAD: dict[Any, Callable[..., Tensor]] = {functional.batch_norm: _normalise, functional.instance_norm: _normalise_each}


_HIDDEN = (
    "{} updates its running statistics under no_grad in the loss: they follow the weights, but without a derivative. Put the "
    "model in eval mode for that pass."
)
