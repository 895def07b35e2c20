"""What torch.compile sees of a solve: one call that it does not look into."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def outside_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """A function that code compiled around it calls as it is: one break of the graph, and nothing inside is traced.

    What `torch.compiler.disable` does, without its import of the whole compiler, which takes seconds. A solve decides by numbers
    when to stop; traced, it would fall into many graphs that differ from call to call. Costs half a microsecond.
    """
    frames: Any = torch._C._dynamo.eval_frame  # pyright: ignore[reportAttributeAccessIssue]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        compiler = frames.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            frames.set_eval_frame(compiler)

    marked: Any = call
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = "a solve decides by numbers when to stop; compile=True compiles its steps"
    marked._torchdynamo_disable_recursive = True
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
    frames.set_code_exec_strategy(marked.__code__, skip)
    return call
