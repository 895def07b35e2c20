"""The Hopfield network against dense algebra, its training, one trial end to end, and what is recorded of it."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from steadygrad.fixedpoint import Picard
from steadygrad.gradient import BPTT, Implicit
from steadygrad.linear import Auto, Dense
from steadygrad.paper.experiments.hopfield import HOPFIELD, Hopfield, HopfieldConfig, corrupt, digits, looking, training
from steadygrad.paper.experiments.hopfield.data import pack, unpack

SMALL = HopfieldConfig(side=7, hidden=24, passes=4, rate=4e-3, warmup=1, validate_every=2, updates=12)


def network(pixels: int = 6, hidden: int = 5, slope: float = 2.0, scale: float = 0.15, seed: int = 0) -> Hopfield:
    return Hopfield(pixels, hidden, slope, scale, seed).double()


def images(count: int = 3, pixels: int = 6) -> Tensor:
    return (torch.rand(count, pixels, generator=torch.Generator().manual_seed(1)) > 0.5).double()


def whole(model: Hopfield) -> Tensor:
    """W over all neurons, observed first; W_oo is anything, since observed neurons are clamped."""
    p = model.pixels
    W = torch.randn(p + model.free, p + model.free, dtype=torch.float64)
    W[p:, :p], W[:p, p:], W[p:, p:] = model.inward.detach(), model.inward.detach().T, model.coupling.detach()
    return W


def silent(done: int, total: int, note: str) -> None: ...


def test_update_is_the_written_out_formula_with_observed_neurons_clamped():
    model, x = network(), images()
    h = torch.randn(3, model.free, dtype=torch.float64)
    every = torch.cat([x, h], dim=1)
    expected = torch.stack([whole(model) @ (1 / (1 + torch.exp(-model.slope * row))) for row in every])[:, model.pixels :]
    torch.testing.assert_close(model(h, model.clamped(x)), expected)


def test_weights_are_drawn_symmetric_with_a_zero_diagonal_and_the_scale_asked_for():
    S = Hopfield(40, 60, scale=1e-3).coupling.detach()
    assert torch.equal(S, S.T)
    assert not S.diagonal().any()
    assert float(S.std()) == pytest.approx(2**0.5 * 1e-3, rel=0.05)


def test_weights_stay_symmetric_in_training_also_in_a_copy():
    x = images().float()
    schedule = training.Schedule("sigmoid", 3, 0.01, 0, False, 3, Picard(max_steps=20))
    for model in (Hopfield(6, 5, 2.0, 0.1), copy.deepcopy(Hopfield(6, 5, 2.0, 0.1))):
        before = model.coupling.detach().clone()
        list(training.Learning(model, x, schedule, lambda _: BPTT()))
        S = model.coupling.detach()
        assert torch.equal(S, S.T)
        assert not S.diagonal().any()
        assert not torch.equal(S, before)


def test_adam_with_twice_the_rate_is_that_of_the_released_code():
    """W = A + Aᵀ over all neurons, Adam on A, against ours."""
    ours, x = network(seed=3), images()
    p = ours.pixels
    W = whole(ours).fill_diagonal_(0)
    A = (W / 2).requires_grad_()
    mask = 1 - torch.eye(len(A), dtype=torch.float64)
    theirs = torch.optim.Adam([A], lr=0.01)
    schedule = training.Schedule("state", 4, 0.01, 0, False, 1, Picard(max_steps=9, rtol=0))
    for _ in range(4):
        for row in x:
            theirs.zero_grad()
            full = (A + A.T) * mask
            h = torch.zeros(ours.free, dtype=torch.float64)
            for _ in range(9):
                h = full[p:] @ torch.sigmoid(ours.slope * torch.cat([row, h]))
            (h[ours.hidden :] - row).abs().mean().backward()
            theirs.step()
    list(training.Learning(ours, x, schedule, lambda _: BPTT()))
    full = ((A + A.T) * mask).detach()
    torch.testing.assert_close(ours.coupling.detach(), full[p:, p:], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(ours.inward.detach(), full[p:, :p], rtol=1e-5, atol=1e-7)


def jacobian(model: Hopfield, h: Tensor, c: Tensor) -> Tensor:
    """Dense, by one VJP a neuron."""
    leaf = h.clone().requires_grad_()
    image = model(leaf, c).squeeze(0)
    return torch.stack([torch.autograd.grad(entry, leaf, retain_graph=True)[0].squeeze(0) for entry in image])


def test_jacobian_is_the_closed_form():
    model, x = network(), images(1)
    h, c = torch.randn(1, model.free, dtype=torch.float64), model.clamped(x).detach()
    x_free = torch.sigmoid(model.slope * h)
    closed = model.coupling.detach() * (model.slope * x_free * (1 - x_free))
    torch.testing.assert_close(jacobian(model, h, c), closed)
    torch.testing.assert_close(model.gain(h), model.slope * x_free * (1 - x_free))


def test_spectral_radius_and_norm_are_those_of_the_dense_jacobian():
    model, x = network(scale=0.4), images(2)
    c = model.clamped(x).detach()
    h = torch.randn(2, model.free, dtype=torch.float64)
    J = [jacobian(model, h[i : i + 1], c[i : i + 1]) for i in range(2)]
    assert looking.spectral_radius(model, h) == pytest.approx(
        max(float(torch.linalg.eigvals(j).abs().max()) for j in J), rel=1e-9
    )
    assert looking.norm(model, h) == pytest.approx(max(float(torch.linalg.matrix_norm(j, 2)) for j in J), rel=1e-9)


@pytest.mark.parametrize("readout", ["state", "sigmoid"])
@pytest.mark.parametrize("method", [Implicit(Dense()), Implicit(Auto())], ids=repr)
def test_implicit_gradients_are_those_of_bptt(readout: training.Readout, method: Implicit):
    x = images()
    grads: list[list[Tensor]] = []
    for each in (method, BPTT()):
        model = network(scale=0.1)
        solution, _ = training.settle(model, x, Picard(max_steps=300, rtol=1e-13), each)
        training.objective(model, solution.value, x, readout).backward()
        grads.append([model.inward.grad, model.coupling.grad])  # pyright: ignore
    assert looking.spectral_radius(network(scale=0.1), solution.value.detach()) < 1
    for ours, bptt in zip(*grads, strict=True):
        assert ours.abs().max() > 1e-3
        torch.testing.assert_close(ours, bptt, rtol=1e-8, atol=1e-10)


def test_objective_of_a_batch_is_the_sum_of_those_of_its_images():
    model, x = network(), images()
    h = torch.randn(3, model.free, dtype=torch.float64)
    for readout in ("state", "sigmoid"):
        alone = sum(training.objective(model, h[i : i + 1], x[i : i + 1], readout) for i in range(3))
        torch.testing.assert_close(training.objective(model, h, x, readout), alone)


def test_cotangent_of_the_published_loss_is_one_over_the_root_of_the_pixels():
    model, x = network(), images()
    norms = training.cotangent(model, torch.randn(3, model.free, dtype=torch.float64), x, "state")
    torch.testing.assert_close(norms, torch.full((3,), 6**-0.5, dtype=torch.float64))


def test_energy_is_the_paper_s_lyapunov_function():
    """Against the sums as written, with the integral of φ⁻¹ taken numerically."""
    model, x = network(), images(1)
    h, c = torch.randn(1, model.free, dtype=torch.float64), model.clamped(x).detach()
    out = torch.sigmoid(model.slope * h)[0]
    grid = torch.linspace(0, 1, 200_001, dtype=torch.float64)[1:-1]
    inverse = torch.logit(grid) / model.slope
    integrals = torch.stack([torch.trapezoid(inverse[grid <= v], grid[grid <= v]) for v in out])
    expected = integrals.sum() - 0.5 * out @ model.coupling.detach() @ out - c[0] @ out
    assert float(model.energy(h, c)) == pytest.approx(float(expected), abs=2e-3)


def test_the_steady_state_is_a_stationary_point_of_the_energy():
    model, x = network(), images()
    c = model.clamped(x).detach()
    h = looking.retrieve(model, x, 300)
    step = 1e-5 * torch.randn_like(h)
    slope = (model.energy(h + step, c) - model.energy(h - step, c)) / (2 * step.norm())
    assert float(slope.detach().abs().max()) < 1e-6


def test_energy_falls_along_retrieval_and_a_rise_is_seen():
    x = images()
    falling = looking.follow(network(scale=0.3), x, 40)
    assert falling.largest_rise == 0
    assert falling.energy[-1] < falling.energy[0]
    # Strong mutual inhibition makes the synchronous update a cycle, in which the energy must rise again.
    model = network(slope=8.0)
    with torch.no_grad():
        model.coupling.copy_(-torch.ones(model.free, model.free)).fill_diagonal_(0)
    assert looking.follow(model, x, 40).largest_rise > 0


def test_energy_falls_in_small_steps_whatever_the_weights():
    """dh/dt = F(h) − h, the equation for which it is a Lyapunov function."""
    model, x = network(slope=8.0, scale=1.0), images()
    c = model.clamped(x).detach()
    h = model.start(x)
    energies: list[Tensor] = []
    for _ in range(400):
        energies.append(model.energy(h, c))
        h = h + 0.02 * (model(h, c).detach() - h)
    assert float(torch.stack(energies).diff(dim=0).max()) < 1e-9


def test_differences_are_those_of_the_states():
    model, x = network(), images()
    way = looking.follow(model, x, 5)
    h, before = looking.retrieve(model, x, 5), looking.retrieve(model, x, 4)
    assert torch.equal(way.state, h)
    assert way.absolute[-1] == pytest.approx(float((h - before).norm(dim=1).mean()))
    assert way.relative[-1] == pytest.approx(float(((h - before).norm(dim=1) / h.norm(dim=1)).max()))
    assert len(way.energy) == 6


def test_digits_are_the_first_of_each_class_in_black_and_white():
    full = digits()
    assert full.shape == (10, 784)
    assert set(full.unique().tolist()) == {0.0, 1.0}
    assert float(full.mean()) == pytest.approx(0.1991, abs=1e-4)
    assert digits(14).shape == (10, 196)
    with pytest.raises(ValueError, match="side must divide 28"):
        digits(9)


def test_corruption_clears_half_of_the_set_pixels_and_only_those():
    clean = digits(14)
    corrupted = corrupt(clean, seed=3)
    assert (corrupted <= clean).all()
    for a, b in zip(clean.sum(1).tolist(), corrupted.sum(1).tolist(), strict=True):
        assert b == a - round(0.5 * a)
    assert torch.equal(corrupted, corrupt(clean, seed=3))
    assert not torch.equal(corrupted, corrupt(clean, seed=4))
    with pytest.raises(ValueError, match="between 0 and 1"):
        corrupt(clean, 0, 1.5)


def test_pack_and_unpack():
    x = images(4, 13).float()
    assert torch.equal(unpack(pack(x), 13), x)
    assert pack(torch.tensor([[1.0, 0, 0, 0, 0, 0, 0, 1, 1]])) == ["8180"]


def test_schedule_warms_up_then_falls_to_zero():
    schedule = training.Schedule("sigmoid", 10, 1.0, 4, True, 1, Picard())
    factors = [schedule.factor(done) for done in range(11)]
    assert factors[0] == 0.25
    assert factors[10] == pytest.approx(0)
    assert max(factors) == factors[3]
    constant = training.Schedule("state", 10, 1.0, 0, False, 1, Picard())
    assert {constant.factor(done) for done in range(10)} == {1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "rtrl"}, "'rtrl' is no gradient method; choose one of bptt"),
        ({"side": 5}, "side must divide 28"),
        ({"slope": 0.0}, "slope must be positive"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"passes": 0}, "passes must be at least 1"),
        ({"rate": -1.0}, "rate must be positive"),
        ({"warmup": 5}, "warmup must lie between 0 and the 4 passes"),
        ({"validate_every": 0}, "validate_every must be at least 1"),
    ],
)
def test_bad_config_is_refused(change: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        HOPFIELD.run(replace(SMALL, **change), silent)  # pyright: ignore


@pytest.mark.parametrize("method", ["bptt", "tbptt", "rbp-uniform", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto"])
@pytest.mark.parametrize("mode", ["corrected", "as-published"])
def test_a_trial_is_the_same_each_time_and_fits_a_small_record(mode: str, method: str):
    config = replace(SMALL, mode=mode, method=method, batch=10 if mode == "corrected" else 3, steps=5)  # pyright: ignore
    first, again = HOPFIELD.run(config, silent), HOPFIELD.run(config, silent)
    assert first.pop("measured").keys() == again.pop("measured").keys()
    assert first == again
    assert len(json.dumps(first)) < 60_000
    assert len(first["training_l1"]) == 4
    assert first["validation"]["pass"] == [0, 2, 4]
    adjoints = first["validation"]["adjoint_residual"]
    assert adjoints[0] is None
    assert (adjoints[-1] is None) == (method in ("bptt", "tbptt"))
    assert unpack(first["images"]["retrieved"], 49).shape == (10, 49)


def test_a_trial_learns_and_retrieves():
    config = replace(SMALL, side=14, hidden=64, passes=60, rate=8e-3, warmup=6, updates=50, validate_every=60)
    result = HOPFIELD.run(config, silent)
    assert result["success"]
    assert result["final_loss"] < 0.05
    assert result["pixel_error_fresh"] < 0.03 < result["pixel_error_corrupted"]
    assert result["energy"][-1] < result["energy"][0]


def test_passes_that_end_between_validations_are_validated_too():
    result = HOPFIELD.run(replace(SMALL, passes=3), silent)
    assert result["validation"]["pass"] == [0, 2, 3]


def test_presets_have_every_method_and_the_paper_s_counts():
    methods = {"bptt", "tbptt", "rbp-uniform", "rbp-zeros", "cg-rbp", "neumann-rbp", "auto"}
    for name in ("smoke", "standard", "paper"):
        for mode in ("corrected", "as-published"):
            assert {trial.method for trial in HOPFIELD.presets[name].trials if trial.mode == mode} == methods
    paper = [t for t in HOPFIELD.presets["paper"].trials if t.mode == "as-published"]
    for method in ("tbptt", "rbp-uniform", "cg-rbp", "neumann-rbp"):
        for steps in (10, 20, 30):
            assert sum(t.method == method and t.steps == steps for t in paper) == 100
    assert {(t.side, t.hidden, t.passes, t.updates, t.slope, t.batch) for t in paper} == {(28, 1024, 1000, 50, 0.5, 1)}
