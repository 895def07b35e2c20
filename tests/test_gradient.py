"""Gradients of steady states against dense algebra, finite differences and each other."""

import itertools

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import FAMILIES, RADII, Affine, relative, tanh_problem
from steadygrad.api import SHORTHANDS
from steadygrad.iteration.goal import AT_FIRST, FEW_CHEAP, STRETCH

TIGHT = sg.Picard(max_steps=20_000, rtol=1e-13)
EXACT = [
    sg.Implicit(sg.Auto()),
    sg.Implicit(sg.NormalCG()),
    sg.Implicit(sg.Neumann(max_steps=5000)),
    sg.Implicit(sg.Picard(max_steps=5000, rtol=1e-11)),
    sg.Implicit(sg.Picard(max_steps=5000, rtol=1e-11), initial="uniform", seed=3),
    sg.Implicit(sg.Dense()),
    sg.BPTT(),
    sg.TBPTT(steps=3000),
]


def gradients(problem, loss, wrt, **options):
    solution = sg.steady_state(problem, **options)
    return torch.autograd.grad(loss(solution.value), wrt), solution


@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gradient", EXACT, ids=repr)
def test_every_method_on_every_problem(gradient, family, radius):
    problem = Affine.of(family, radius)
    b = torch.randn(20, dtype=torch.float64)
    (dJ, dc), _ = gradients(
        problem, lambda h: h @ b, (problem.J, problem.c), h0=torch.zeros(20).double(), forward=TIGHT, gradient=gradient
    )
    exact_J, exact_c = problem.gradients(b)
    assert relative(dJ, exact_J) < 1e-7
    assert relative(dc, exact_c) < 1e-7


@pytest.mark.parametrize("gradient", EXACT[:-2], ids=repr)
def test_finite_differences(gradient):
    F, W, x, h0 = tanh_problem()

    def steady(W, x):
        return sg.steady_state(lambda h: torch.tanh(h @ W.T + x), h0, forward=TIGHT, gradient=gradient).value

    assert torch.autograd.gradcheck(steady, (W, x), atol=1e-6)


@pytest.mark.parametrize("name", SHORTHANDS)
def test_value_is_the_last_iterate_bit_for_bit(name):
    F, _, _, h = tanh_problem(dtype=torch.float32)
    solution = sg.steady_state(F, h, forward=sg.Picard(max_steps=17, rtol=0), gradient=name)
    with torch.no_grad():
        for _ in range(17):
            h = F(h)
    assert torch.equal(solution.value, h)
    assert solution.steps == 17
    assert solution.value.grad_fn is not None


def test_default_agrees_with_bptt_in_float32():
    F, W, x, h0 = tanh_problem(size=64, rows=32, dtype=torch.float32)
    found = [
        torch.autograd.grad(sg.steady_state(F, h0, gradient=gradient).value.square().sum(), (W, x))
        for gradient in ("auto", "bptt")
    ]
    for ours, theirs in zip(*found, strict=True):
        assert relative(ours, theirs) < 1e-4


def test_bptt_runs_the_forward_pass_once():
    calls = 0
    F, W, _, h0 = tanh_problem()

    def counted(h):
        nonlocal calls
        calls += 1
        return F(h)

    solution = sg.steady_state(counted, h0, gradient="bptt")
    torch.autograd.grad(solution.value.sum(), W)
    assert calls == solution.steps


@pytest.mark.parametrize(("gradient", "extra"), [("auto", 1), ("neumann-rbp", 1), ("tbptt", 0)])
def test_evaluations_of_f(gradient, extra):
    calls = 0
    F, W, _, h0 = tanh_problem()

    def counted(h):
        nonlocal calls
        calls += 1
        return F(h)

    solution = sg.steady_state(counted, h0, gradient=gradient, forward=sg.Picard(max_steps=30, rtol=0))
    torch.autograd.grad(solution.value.sum(), W)
    assert calls == 30 + extra


def test_bptt_reaches_the_start_and_implicit_does_not():
    F, _, _, h0 = tanh_problem()
    h0.requires_grad_()
    short = sg.Picard(max_steps=3, rtol=0)
    assert torch.autograd.grad(sg.steady_state(F, h0, forward=short, gradient="bptt").value.sum(), h0)[0].norm() > 0
    value = sg.steady_state(F, h0, forward=short, gradient="auto").value.sum()
    assert torch.autograd.grad(value, h0, allow_unused=True)[0] is None


@pytest.mark.parametrize(
    "forward", [sg.Picard(max_steps=12, rtol=0), sg.Picard(rtol=1e-4), sg.Picard(rtol=1e-4, damping=0.2)], ids=repr
)
@pytest.mark.parametrize("steps", [1, 4])
def test_tbptt_is_the_last_steps_unrolled(forward, steps):
    F, W, _, h = tanh_problem()
    solution = sg.steady_state(F, h, forward=forward, gradient=sg.TBPTT(steps=steps))
    with torch.no_grad():
        for _ in range(solution.steps - steps):
            h = torch.lerp(F(h), h, forward.damping)
    for _ in range(steps):
        h = torch.lerp(F(h), h, forward.damping)
    assert torch.equal(solution.value, h)
    ours, theirs = (torch.autograd.grad(v.square().sum(), W)[0] for v in (solution.value, h))
    assert relative(ours, theirs) < 1e-13


def test_damped_gradient_is_that_of_the_same_steady_state():
    F, W, _, h0 = tanh_problem()
    found = [
        torch.autograd.grad(sg.steady_state(F, h0, forward=sg.Picard(2000, 1e-13, damping=d)).value.square().sum(), W)[0]
        for d in (0.0, 0.4)
    ]
    assert relative(*found) < 1e-9


def test_damping_finds_what_plain_iteration_cannot():
    a = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    solution = sg.steady_state(lambda h: a - 1.5 * h, torch.zeros(1).double(), forward=sg.Picard(rtol=1e-12, damping=0.5))
    assert solution.converged
    solution.value.sum().backward()
    assert solution.value.item() == pytest.approx(0.4)
    assert a.grad.item() == pytest.approx(0.4)


class TestStates:
    @pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3, 4), (1, 1, 5)], ids=str)
    @pytest.mark.parametrize("gradient", ["auto", "cg-rbp", "bptt", "dense"])
    def test_any_shape(self, shape, gradient):
        a = torch.full(shape, 0.5, dtype=torch.float64, requires_grad=True)
        solution = sg.steady_state(lambda h: a * h + 1, torch.zeros(shape).double(), forward=TIGHT, gradient=gradient)
        assert solution.value.shape == shape
        solution.value.sum().backward()
        assert torch.allclose(a.grad, torch.full(shape, 4.0).double())

    @pytest.mark.parametrize("gradient", ["auto", "cg-rbp", "rbp", "bptt", sg.TBPTT(steps=500), "dense"], ids=str)
    def test_nested(self, gradient):
        """A nested state gives the gradient of the same problem written with one tensor."""
        A = (0.2 * torch.randn(5, 5, dtype=torch.float64)).requires_grad_()

        def nested(h):
            flat = torch.cat([h["a"], h["rest"][0].flatten(), h["rest"][1][0]])
            new = torch.tanh(A @ flat + 1)
            return {"a": new[:2], "rest": (new[2:4].view(1, 2), [new[4:]])}

        start = {"a": torch.zeros(2).double(), "rest": (torch.zeros(1, 2).double(), [torch.zeros(1).double()])}
        solution = sg.steady_state(nested, start, forward=TIGHT, gradient=gradient)
        value = torch.cat([solution.value["a"], solution.value["rest"][0].flatten(), solution.value["rest"][1][0]])
        plain = sg.steady_state(lambda h: torch.tanh(A @ h + 1), torch.zeros(5).double(), forward=TIGHT, gradient="dense").value
        assert torch.allclose(value, plain)
        ours, theirs = (torch.autograd.grad((v**2).sum(), A)[0] for v in (value, plain))
        assert relative(ours, theirs) < (1e-4 if gradient == "rbp" else 1e-8)

    def test_part_of_the_state_is_constant(self):
        """Outputs that need no gradient, and inputs that F does not read."""
        a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        one = torch.ones(2, dtype=torch.float64)
        for gradient in ("auto", "cg-rbp", "dense"):
            (h, k) = sg.steady_state(lambda s: (a * s[0] + s[1], one), (0 * one, 0 * one), forward=TIGHT, gradient=gradient).value
            (grad,) = torch.autograd.grad(h.sum(), a)
            assert grad.item() == pytest.approx(8.0)
            assert torch.equal(k, one)

    def test_only_part_of_the_value_is_used(self):
        a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        value = sg.steady_state(
            lambda s: [a * s[0] + 1, a * s[1]],
            [torch.zeros(1).double(), torch.ones(2).double()],
            forward=sg.Picard(2000, 1e-13, atol=1e-13),
        ).value
        assert torch.autograd.grad(value[0].sum(), a)[0].item() == pytest.approx(4.0)

    def test_args_get_gradients(self):
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        value = sg.steady_state(lambda h, x, s: s * h + x, torch.zeros(3).double(), x, scale, forward=TIGHT).value
        dx, ds = torch.autograd.grad(value.sum(), (x, scale))
        assert torch.allclose(dx, torch.full((3,), 2.0).double())
        assert ds.item() == pytest.approx(4 * x.sum().item())

    def test_module_as_update(self):
        cell = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double()
        value = sg.steady_state(cell, torch.zeros(2, 4).double()).value
        value.sum().backward()
        assert cell[0].weight.grad.norm() > 0

    def test_sparse_products(self):
        """torch.func.jvp fails through sparse products; ours does not."""
        indices = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
        A = torch.sparse_coo_tensor(indices, torch.full((4,), 0.3, dtype=torch.float64), (3, 3), check_invariants=True).coalesce()
        w = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
        found = [
            torch.autograd.grad(
                sg.steady_state(
                    lambda h: torch.tanh(w * torch.sparse.mm(A, h)) + 1, torch.zeros(3, 2).double(), forward=TIGHT, gradient=g
                ).value.sum(),
                w,
            )[0]
            for g in ("cg-rbp", "auto", "bptt")
        ]
        assert found[0].item() == pytest.approx(found[2].item(), rel=1e-9)
        assert found[1].item() == pytest.approx(found[2].item(), rel=1e-9)


class TestForward:
    def test_trace_of_residuals(self):
        F, *_, h0 = tanh_problem()
        solution = sg.steady_state(F, h0)
        looked = [step for step, _ in solution.residuals]
        assert looked[:2] == [1, 1 + AT_FIRST]
        assert looked[-1] == solution.steps
        assert all(0 < after - before <= STRETCH * max(before // 3, FEW_CHEAP) for before, after in itertools.pairwise(looked))
        assert solution.residuals[-1][1] <= 1e-5 < solution.residuals[-2][1]
        counted = sg.steady_state(F, h0, forward=sg.Picard(max_steps=25, rtol=0))
        assert [step for step, _ in counted.residuals] == [10, 20, 25]
        assert counted.status is sg.Status.MAX_STEPS

    def test_relative_residual(self):
        solution = sg.steady_state(lambda h: 0.5 * h + 1, torch.zeros(1).double(), forward=sg.Picard(max_steps=3, rtol=0))
        assert solution.residuals[0] == (1, 1.0)
        assert solution.residuals[-1] == (3, pytest.approx(0.25 / 1.75))

    def test_growth_is_divergence(self):
        with pytest.warns(sg.SteadyStateWarning, match="DIVERGED.*Add damping"):
            solution = sg.steady_state(lambda h: 1.5 * h + 1, torch.ones(2))
        assert solution.status is sg.Status.DIVERGED
        assert solution.steps < 100
        assert solution.value.isfinite().all()

    def test_slow_growth_is_divergence(self):
        with pytest.warns(sg.SteadyStateWarning, match="DIVERGED"):
            assert sg.steady_state(lambda h: 1.03 * h + 1, torch.ones(2)).status is sg.Status.DIVERGED

    def test_growth_in_an_exact_count_is_divergence(self):
        with pytest.warns(sg.SteadyStateWarning, match="DIVERGED"):
            solution = sg.steady_state(lambda h: 1.5 * h + 1, torch.ones(2), forward=sg.Picard(max_steps=30, rtol=0))
        assert solution.steps == 30

    def test_a_cycle_stagnates(self):
        with pytest.warns(sg.SteadyStateWarning, match="STAGNATED.*cycle"):
            sg.steady_state(lambda h: -h, torch.ones(2), forward=sg.Picard(max_steps=1000))

    def test_too_few_steps(self):
        with pytest.warns(sg.SteadyStateWarning, match="MAX_STEPS.*Raise max_steps"):
            sg.steady_state(lambda h: 0.99 * h + 1, torch.ones(2), forward=sg.Picard(max_steps=20))

    def test_a_state_that_vanishes_needs_atol(self):
        assert sg.steady_state(lambda h: 0.5 * h, torch.ones(2), forward=sg.Picard(atol=1e-6)).converged

    def test_an_exact_zero_converges(self):
        solution = sg.steady_state(lambda h: 0 * h, torch.ones(2))
        assert solution.converged
        assert solution.value.count_nonzero() == 0
