"""sg.hyper: hypergradients against differences of the whole training, and what implicit ones say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from drawing import Draw
from torch import Tensor, nn

import steadygrad as sg
from steadygrad import hyper
from surfaces.outcome import Outcome

EPS = 1e-5
STEEP, WIDE, ROUGHLY = 1e4, 100.0, 0.05
"""Differences that disagree are taken again, over a step so many times smaller, or larger, and compared to so many digits."""
LONGER = 10
"""How many times longer a training is for differences at its end."""
EXACT = ["bptt", "forward", sg.BPTT(checkpoints=3), sg.BPTT(memory="log"), None, "tbptt whole"]
IMPLICIT = ["auto", "cg-rbp", "lsqr", "gmres", sg.Implicit(sg.Neumann())]


def trial(seed: int) -> Outcome:
    draw = Draw(seed)
    torch.manual_seed(seed)
    kind = draw.choice(["linear", "net", "own", "schedule", "norm", "batches", *NETS])
    implicit = kind in ("linear", "own") and draw.happens(0.5)
    method = draw.choice(IMPLICIT if implicit else EXACT)
    step, values, objective, batches, state = _training(draw, kind)
    steps = draw.whole(300, 500) if implicit else draw.whole(1, 12 if kind in NETS else 25)
    if method == "tbptt whole":
        method = sg.TBPTT(steps=steps)
    outcome = Outcome(f"{kind} {method} steps {steps} {type(step).__name__} {list(values)}")
    options: dict[str, Any] = {"batches": batches, "steps": steps, "seed": seed}
    if state is not None:
        options["state"] = state

    # An implicit hypergradient is that of a training at its end.
    whole = {**options, "steps": LONGER * steps} if implicit else options

    def loss_at(changed: dict[str, Tensor]) -> float:
        return hyper.hypergradient(
            step, changed, objective, method=sg.TBPTT(steps=1), on_failure="ignore", check=False, **whole
        ).loss

    with outcome.listening():
        found = hyper.hypergradient(step, values, objective, method=method, **options)
    if outcome.said or found.degenerate:
        outcome.said.append(f"degenerate {list(found.degenerate)}" if not outcome.said else "")
        return outcome
    outcome.facts = {"loss": found.loss, "remaining": found.remaining, "values": {k: v.tolist() for k, v in values.items()}}
    for name, gradient in found.gradients.items():
        exact = _differences(loss_at, values, name)
        least = 1e-6 * (1 + abs(found.loss))
        if implicit:  # what a change by a tenth does beside the objective
            least = 0.1 * abs(found.loss) / float(values[name].norm())
        left = abs(found.remaining or 0.0) / abs(found.loss)  # below 1 % nothing is said, and the gradient is off by more
        allowed = max(0.02, 10 * left) if implicit else 1e-3
        if _relative(gradient.reshape(-1), exact) > allowed:
            # Normalised over two numbers, a net is nearly a step function, and Adam never comes to rest: is this the truth?
            # Or it is hardly there, and differences over a small step are rounding.
            others = [_differences(loss_at, values, name, eps) for eps in (EPS * WIDE, EPS / STEEP)[: 1 if implicit else 2]]
            other = next((wide for wide in others if _relative(wide, exact) <= ROUGHLY), others[-1])
            if implicit and _relative(other, exact) > ROUGHLY:
                outcome.said.append(f"no truth for {name}")
                continue
            exact, allowed = other, max(allowed, ROUGHLY)
        outcome.compare(name, gradient.reshape(-1), exact, allowed, least=max(least, 1e-9))
    return outcome


def _relative(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm().clamp(min=1e-300))


def _differences(loss_at: Callable[[dict[str, Tensor]], float], values: dict[str, Tensor], name: str, eps: float = EPS) -> Tensor:
    found = []
    for i in range(values[name].numel()):
        ends = []
        for sign in (1, -1):
            changed = {key: value.clone() for key, value in values.items()}
            size = eps * max(1e-2, float(changed[name].reshape(-1)[i].abs()))
            changed[name].view(-1)[i] += sign * size
            ends.append(loss_at(changed))
        found.append((ends[0] - ends[1]) / (2 * size))
    return torch.tensor(found, dtype=torch.float64)


def _optimiser(draw: Draw, model: nn.Module, loss: Any) -> tuple[Any, dict[str, Tensor]]:
    """An optimiser with some of its settings as hyperparameters."""
    values: dict[str, Tensor] = {}
    if draw.happens(0.5):
        settings = {"rate": draw.log(0.01, 0.2), "momentum": draw.number(0, 0.9), "decay": draw.log(1e-3, 0.3)}
        make: Any = hyper.SGD
    else:
        settings = {"rate": draw.log(0.003, 0.1), "beta1": draw.number(0.5, 0.95), "decay": draw.log(1e-3, 0.3)}
        make = hyper.Adam
    chosen = [name for name in settings if draw.happens(0.5)] or ["decay"]
    values = {name: torch.tensor(settings[name], dtype=torch.float64) for name in chosen}
    extra = {"decoupled": True} if make is hyper.Adam and draw.happens(0.3) else {}
    return make(model, loss, **{k: v for k, v in settings.items() if k not in chosen}, **extra), values


def _training(draw: Draw, kind: str) -> tuple[Any, dict[str, Tensor], Any, Any, Any]:
    x, y = draw.normal(12, 3), draw.normal(12, 1)
    vx, vy = draw.normal(9, 3), draw.normal(9, 1)
    if kind == "own":
        return _own(draw, x, y, vx, vy)
    models = {
        "linear": lambda: nn.Linear(3, 1),
        "norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.BatchNorm1d(4), nn.Linear(4, 1)),
    }
    model = {**models, **NETS}.get(
        kind, lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1))
    )().double()

    def loss(model: nn.Module, batch: Any, hyper: dict[str, Tensor]) -> Tensor:
        bx, by = batch
        return hyper.get("weight", torch.tensor(1.0)) * (model(bx) - by).square().mean()

    def objective(model: nn.Module, hyper: dict[str, Tensor]) -> Tensor:
        return (model(vx) - vy).square().mean()

    step, values = _optimiser(draw, model, loss)
    if draw.happens(0.3):
        name = draw.choice(list(values))
        values[name] = step.per_tensor(float(values[name])) * (1 + 0.1 * torch.arange(len(step.names)))
    if kind == "schedule":
        step = hyper.SGD(model, loss, momentum=0.5)
        values = {"rate": torch.tensor([0.1, 0.02], dtype=torch.float64), "decay": torch.tensor(0.01, dtype=torch.float64)}
        values["rate"] = torch.tensor(draw.log(0.01, 0.2), dtype=torch.float64)
    if kind == "linear" and draw.happens(0.5):
        values = {"decay": torch.tensor(draw.log(1e-2, 0.5), dtype=torch.float64)}
        step = hyper.SGD(model, loss, rate=0.1)
    if draw.happens(0.3):
        values["weight"] = torch.tensor(draw.number(0.5, 2.0), dtype=torch.float64)
    batches: Any = [(x, y)]
    if kind == "batches":
        batches = [(x[:4], y[:4]), (x[4:8], y[4:8]), (x[8:], y[8:])]
    return step, values, objective, batches, None


class _Steady(nn.Module):
    """A network with a layer at equilibrium, of as many derivatives as are asked for."""

    def __init__(self, derivatives: int) -> None:
        super().__init__()
        self.inner, self.read = nn.Linear(4, 4), nn.Linear(4, 1)
        with torch.no_grad():
            self.inner.weight.mul_(0.3)
        self.encode = nn.Linear(3, 4)
        self.layer = sg.Equilibrium(
            lambda x, h: torch.tanh(x if h is None else self.inner(h) + x),
            derivatives=derivatives,
            forward=sg.Picard(max_steps=500, rtol=1e-13),
            gradient="gmres",
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.layer(self.encode(x)))


class _Attention(nn.Module):
    """Three tokens of one number that attend to each other."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.attend, self.read = nn.Linear(1, 4), nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.lift(x.unsqueeze(-1))
        return self.read(self.attend(tokens, tokens, tokens)[0].mean(1))


class _Tied(nn.Module):
    """The same weights there and back, and one tensor that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(0.5 * torch.randn(4, 3)), nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(x @ self.weight.mT) @ self.weight * self.scale).sum(1, keepdim=True)


NETS: dict[str, Callable[[], nn.Module]] = {
    "equilibrium": lambda: _Steady(2),
    "equilibrium_once": lambda: _Steady(1),
    "attention": _Attention,
    "tied": _Tied,
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 3, 2), nn.GroupNorm(3, 3), nn.SiLU(), nn.Flatten(), nn.Linear(6, 1)
    ),
    "weight_norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Softplus(), nn.Linear(4, 1)),
    "spectral_norm": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 1)),
}


def _own(draw: Draw, x: Tensor, y: Tensor, vx: Tensor, vy: Tensor) -> tuple[Any, dict[str, Tensor], Any, Any, Any]:
    """A step of one's own: ridge regression by momentum, a weight for each example."""

    def step(state: dict[str, Tensor], hyper: dict[str, Tensor], batch: Any) -> dict[str, Tensor]:
        w, m = state["w"], state["m"]
        residual = (x @ w - y) * torch.sigmoid(hyper["weights"]).unsqueeze(1)
        m = 0.5 * m + x.mT @ residual / len(x) + hyper["ridge"].exp() * w
        return {"w": w - 0.1 * m, "m": m}

    def objective(state: dict[str, Tensor], hyper: dict[str, Tensor]) -> Tensor:
        return (vx @ state["w"] - vy).square().mean() + 0.01 * hyper["ridge"]

    values = {"weights": draw.normal(12), "ridge": torch.tensor(draw.number(-3, 0), dtype=torch.float64)}
    state = {"w": torch.zeros(3, 1, dtype=torch.float64), "m": torch.zeros(3, 1, dtype=torch.float64)}
    return step, values, objective, [None], state
