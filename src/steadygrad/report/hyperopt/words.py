"""The sentences of the hyperopt section, with their numbers from the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steadygrad.report.hyperopt.costs import Way, flatness
from steadygrad.report.hyperopt.meta import cosine
from steadygrad.report.hyperopt.trials import UNROLLED, Mode, Sorted
from steadygrad.report.style import look
from steadygrad.report.text import number, percent, plural

ABOUT = (
    "A training is a recurrent network: its weights and momenta are the hidden state, an SGD step is the update F, and the "
    "hyperparameters are what is learned, by the gradient of a meta loss after T training steps. K is the number of steps or "
    "terms of the truncated methods. The seed fixes network and data for all methods; all meta steps start from one network."
)
PUBLISHED = (
    "a log learning rate and a momentum logit for each tensor, and the meta loss is that of the training images themselves"
)
CORRECTED = (
    "hyperparameters that move the point at which training rests: {what}; the meta loss is that of {held_out} other images"
)
TRAP_5 = (
    "Learning rates and momenta do not move the point at which SGD rests. There the gradient and the momentum are zero, so a "
    "larger rate or another momentum changes nothing: ∂F/∂α = ∂F/∂β = 0, and so is the implicit hypergradient of the paper's "
    "experiment at convergence. What signal RBP and its variants find as published comes from training not having converged. "
    "Weight decay and other parameters of the loss do move it; hence the corrected mode."
)
TRAP_6 = (
    "The released code of Neumann-RBP is not constant-memory: it builds the graph of all T training steps, as BPTT does. Ours "
    "takes the training steps without a graph and keeps that of the last one."
)


def about(found: Sorted) -> str:
    """What was done, with the settings of the records."""
    return " ".join([ABOUT, *(f"{mode.title}: {training(mode)}, {tuned(mode)}." for mode in found.all)])


def training(mode: Mode) -> str:
    config = any_config(mode)
    layers, batch = config.get("layers"), config.get("batch")
    network = (
        "a softmax regression" if layers == 0 else f"{plural(layers, 'hidden layer')} of 50 tanh units" if layers else "a network"
    )
    taken = f"in mini-batches of {batch}" if batch else "all of them in every step"
    wrong = f", {percent(config['wrong'])} of them with a wrong label" if config.get("wrong") else ""
    return f"{network} on {number(config.get('images'))} MNIST images, {taken}{wrong}"


def tuned(mode: Mode) -> str:
    if mode.name == "as-published":
        return PUBLISHED
    weights = any((trial.result.get("weight") or {}).get("right") for trial in mode.tuned)
    what = "a log weight decay for each tensor" + (" and a log weight for each image" if weights else "")
    return CORRECTED.format(what=what, held_out=number(any_config(mode).get("held_out")))


def any_config(mode: Mode) -> dict[str, Any]:
    """The settings that all trials of a mode share are in each of them."""
    return next(trial.config for trial in (*mode.tuned, *mode.aside, *mode.errors, *mode.costs))


def degenerate(found: Sorted) -> str:
    """Trap 5, and how often sg.hyper said so itself."""
    parts: list[str] = []
    for mode in found.all:
        asked = [trial for trial in mode.tuned if trial.method not in UNROLLED and trial.result.get("degenerate") is not None]
        named = [trial for trial in asked if any(trial.result["degenerate"].values())]
        names = sorted({name for trial in named for name, times in trial.result["degenerate"].items() if times})
        if asked:
            what = f": {', '.join(names)}" if names else ""
            parts.append(f"in {len(named)} of {plural(len(asked), 'trial')} {mode.title.lower()}{what}")
    return TRAP_5 + (f" The check of sg.hyper named degenerate hyperparameters {'; '.join(parts)}." if parts else "")


def agreement(found: Sorted) -> str:
    """The cosine to BPTT's hypergradient over all meta steps at which it was taken, a method and mode."""
    parts: list[str] = []
    for mode in found.all:
        cosines = {look(method).label: cosine(mode, method) for method in ("tbptt", "rbp", "cg-rbp", "neumann-rbp", "auto")}
        shown = ", ".join(f"{name} {value:.2f}" for name, value in cosines.items() if value is not None)
        if shown:
            parts.append(f"{mode.title}: {shown}.")
    if not parts:
        return "No trial compares its hypergradient with BPTT's."
    return f"Median cosine to BPTT's hypergradient over all T, K, seeds and meta steps at which it was taken. {' '.join(parts)}"


def memory(ways: Sequence[Way]) -> str:
    """Trap 6, and what was measured."""
    return " ".join([TRAP_6, *(f"{way.title}: {text}." for way in ways if (text := flatness(way)))])
