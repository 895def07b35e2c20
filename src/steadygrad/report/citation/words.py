"""The sentences between the figures, computed from the records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from steadygrad.report.citation.claims import PAPER_EPOCHS, STEADY
from steadygrad.report.citation.trials import NAMES, Group, Sorted, difference, label, middle
from steadygrad.report.text import number, percent, plural

ABOUT = (
    "Documents of a citation graph are classified from a random 1 % of labels; 49 % of the nodes choose the epoch, 50 % are the "
    "test. As published: a GRU whose start is the node's features and whose input is the sum of the neighbours' states, T = 100 "
    "steps, K = 5, SGD with momentum; the features enter through the start only, on which a steady state does not depend if "
    "it is the only one. "
    "Corrected: h ← (1 − α) Â h + α z(x), so that x enters at every step as the paper's Equation 1 has it, Â has norm 1 and α is "
    "learned: a contraction whatever the weights, solved to a tolerance. APPNP is ten steps of the same diffusion with a fixed α."
)
SCORED = (
    "Test: accuracy on the test nodes at the epoch of the best validation accuracy. Validation: that best accuracy itself, "
    "which the released code most likely reports, since it builds no test split. The seed fixes the split for all methods; "
    "splits are purely random, as in the paper, so some lack a class to learn from (Cora: seeds 0, 4 and 6), which no method "
    "can then learn. The baseline is logistic regression on the features of its mode, without the graph. APPNP has the "
    "corrected mode's features and settings; GCN its usual ones; neither was tuned as long as the diffusion."
)
COSTS = (
    "An epoch is one forward and backward pass over the whole graph on one core, without validation. F: its evaluations; "
    "products with J or Jᵀ, the certificate's own included (the unrolled methods have none: their backward pass is part of "
    "the time). MB an epoch: tensors alive at the worst moment, in diagnosed trials. Peak MB: the whole process, libraries "
    "and validation included. The machine was shared: a factor of two in time means little."
)
MEASURED = (
    "Last step: ‖h_T − h_{T−1}‖ / ‖h_T‖ after training; the paper's: the same difference divided by the number of elements. "
    "Residual: ‖b − (I − Jᵀ)z‖ / ‖b‖ of the adjoint equation in the last validated epoch that was trained on. Medians over "
    "seeds; ρ(J) before training, ‖J‖₂, σ_min and the verdict are of seed 0, by sg.diagnose; what did not settle is a bound, "
    "marked ≤ or ≥. The verdict is on the state and on I − J; whether a method's own gradient is right, its residual says."
)


def epochs(found: Sorted) -> str:
    """How much shorter the published mode was run than in the paper."""
    short = [group for group in found.groups if group.mode == "as-published" and group.epochs < PAPER_EPOCHS]
    runs = [f"{group.epochs} epochs on {NAMES[group.graph]}" for group in short]
    if not runs:
        return ""
    text = f"As published was run for {' and '.join(runs)} instead of {number(PAPER_EPOCHS)}"
    more = [trial.config["epochs"] for group in short for trial in group.others if trial.config["epochs"] > group.epochs]
    if more:
        text += f"; besides, there {'are' if len(more) > 1 else 'is'} {plural(len(more), 'trial')} of up to {number(max(more))}"
    return text + ". Accuracies of networks that are still learning are below what the paper's schedule might reach."


def worth(found: Sorted) -> str:
    """What the steady state is worth beside APPNP, which stops after ten steps."""
    parts: list[str] = []
    for graph in found.graphs:
        group = found.of(graph, "corrected")
        gap = None if group is None else difference(group, "auto", "appnp", lambda trial: trial.test)
        if gap is not None:
            mean = f"{gap.mean:+.2f}".replace("-", "−")
            parts.append(f"{NAMES[graph]} {mean} ± {gap.error:.2f} points over {gap.seeds} seeds")
    if not parts:
        return ""
    return (
        f"Steady state with auto minus APPNP with the same settings, seed by seed, mean and standard error: {'; '.join(parts)}. "
        "Where the two are level, the accuracy comes from the diffusion and its settings, not from going to the steady state."
    )


def truncation(found: Sorted) -> str:
    """What K steps leave of the adjoint's slowest mode in the corrected mode, where all methods seek the same z."""
    parts = [text for group in found.groups if group.mode == "corrected" and (text := kept(group))]
    if not parts:
        return ""
    return (
        "Corrected, all methods seek the same adjoint, (I − Jᵀ)⁻¹b, and what tells them apart is how much of its slowest mode, "
        f"which shrinks by ρ(J) a step, they have after K steps. {' '.join(parts)} Original RBP starts from z₀ ~ U[0, 1], "
        "unscaled and far larger than b, and keeps a share ρᴷ of it, so that its gradient is mostly noise. CG-RBP solves the "
        "normal equations, whose condition number is squared: in K steps it fits the fast modes and hardly begins with the slow."
    )


def kept(group: Group) -> str:
    """The shares on one graph, and what they cost in accuracy."""
    rho = middle(group.of("auto") or group.of("neumann-rbp"), lambda trial: trial.result.get("spectral_radius"))
    steps = group.setting.get("steps")
    if rho is None or steps is None:
        return ""
    shares = (1 - rho ** (steps + 1), 1 - rho**steps, rho**steps)
    of_series, of_unrolled, of_start = (percent(round(share, 2)) for share in shares)
    text = (
        f"{NAMES[group.graph]}: ρ(J) = {rho:.3f}, so with K = {steps} Neumann-RBP has 1 − ρᴷ⁺¹ = {of_series} of it, TBPTT "
        f"1 − ρᴷ = {of_unrolled}, and RBP {of_start} of its start"
    )
    gaps = [
        f"{label(method)} {gap}"
        for method in ("neumann-rbp", "tbptt", "cg-rbp", "rbp")
        if (gap := difference(group, method, "auto", lambda trial: trial.test)) is not None
    ]
    return text + (f"; test accuracy minus that of auto, whose gradient is exact: {', '.join(gaps)}." if gaps else ".")


def diagnosis(found: Sorted) -> str:
    """In each place: whether the trained networks are steady, and how far the last step moves them."""
    parts = [text for group in found.groups if (text := steadiness(group))]
    return " ".join(parts) or "No trial of a gradient method has a result."


def steadiness(group: Group) -> str:
    moved = medians(group, "difference_relative")
    if not moved:
        return ""
    radii = [
        value
        for method in group.gradients()
        if (value := middle(group.of(method), lambda trial: trial.result.get("spectral_radius"))) is not None
    ]
    steady = sum(value < STEADY for value in moved)
    count = {0: "no method is", len(moved): "all methods are"}.get(steady, f"{steady} of {len(moved)} methods are")
    text = f"{group.title}: {count} at a steady state; the last step moves it by {between(moved)} of its norm"
    if not steady:
        text += ", so the adjoint equation is not that of the loss"
    if radii:
        middle_radius = statistics.median(radii)
        text += f"; ρ(J) = {middle_radius:.2f} (median of the methods)" + (", the series diverges" if middle_radius > 1 else "")
    return text + "."


def medians(group: Group, name: str) -> list[float]:
    """The last measured of each gradient method, median over seeds."""
    found = (middle(group.of(method), lambda trial: trial.last(name)) for method in group.gradients())
    return [value for value in found if value is not None]


def between(values: Sequence[float]) -> str:
    low, high = (percent(float(f"{value:.2g}")) for value in (min(values), max(values)))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"
