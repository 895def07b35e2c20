"""Seconds, memory and honesty of steadygrad beside hand-written loops and its peers, as ratios taken in one run.

`python -m benchmarks` runs everything; the names below are what `--only` takes, in the order in which they run.
"""

from __future__ import annotations

BENCHMARKS = {
    "fixed_counts": "thirty steps and thirty products, over the loop one would write by hand",
    "default_call": "the default call over the hand-written loop to the same tolerance",
    "hindsight": "auto beside every single solver, for a cheap and for a dear F",
    "batches": "independent problems: what batch_dims costs, and what dropping finished ones saves",
    "compiled": "compile=True beside eager loops and jitted JAX",
    "time_spent": "where the time of a small call goes",
    "training": "trainings to the same loss against BPTT, and a convolutional layer against torchdeq",
    "memory": "peak memory over the steps, and how many states each solver holds",
    "gradient_error": "error of the gradient against memory and seconds, every method, at rest and not",
    "growth": "cost against the size of the state, the batch, T and K",
    "denormals": "a vanishing adjoint in float32, with the library's guard and without",
    "honesty": "what the library and its peers say when they are wrong",
    "wrong_gradient": "a wrong gradient over the steps of its adjoint solver, and what is said of it",
    "peer_seconds": "the same gradient to the same tolerance by every peer",
    "warm_start": "what a warm start saves in full-batch training",
    "message_passing": "a step of the paper's graph network beside its matrix products alone",
}
"""Each is the module of that name; its rows(effort) are what is measured."""

LONG = {"citation_gradients": "citation graphs: how good truncated gradients are, and what a warm start saves (five minutes)"}
"""Run by --only alone."""

TWO_THREADS = {"message_passing"}
"""All others have one thread: small states gain nothing from more, and one is what repeats best."""
