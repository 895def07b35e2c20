"""The solvers of docs/extending.md, as they stand there, in the tests that the built-in ones go through."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import steadygrad as sg
import test_batches
import test_linear
from problems import FAMILIES, Affine, relative
from steadygrad.fixedpoint import FixedPointSolver
from steadygrad.linear.recurrence import Recurrence

pytestmark = pytest.mark.usefixtures("leaving_out_always_pays")
PAGE = Path(__file__).parents[1] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def page():
    """The names that the code of the page defines; running it is the first test."""
    names = {"__name__": "extending"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize("radius", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("family", FAMILIES)
def test_richardson_against_dense_algebra(page, family, radius):
    test_linear.test_solution_and_certificate(page["Richardson"](max_steps=9000), family, radius)


@pytest.mark.parametrize(
    "test",
    [
        test_linear.test_zero_right_side_gives_zero,
        test_linear.test_nan_is_reported,
        test_linear.test_rows_are_separate_problems,
        test_linear.test_a_bad_row_spoils_no_other,
    ],
)
def test_richardson_on_hard_input(page, test):
    test(page["Richardson"](max_steps=9000))


@pytest.mark.parametrize("family", FAMILIES)
def test_estimate_of_the_error_of_richardson(page, family):
    test_linear.test_error_estimate_is_within_ten(page["Richardson"](rtol=1e-4, max_steps=9000), family, 0.9)


def test_a_count_of_richardson(page):
    solver = page["Richardson"](steps=10)
    operator = test_linear.DenseMap(test_linear.matrix("random", 0.9))
    solved = solver.solve(operator, test_linear.rhs())
    assert solved.status == [sg.Status.MAX_STEPS]
    assert operator.products == 11
    assert repr(solver) == "Richardson(steps=10)"


@pytest.mark.parametrize("gap", [0.0, 1e-15, 1e-13])
def test_nearly_singular_systems_are_reported_of_richardson(page, gap):
    test_linear.test_nearly_singular_systems_are_reported(page["Richardson"](max_steps=300), gap)


@pytest.mark.parametrize("by_args", [True, False], ids=["args", "closure"])
@pytest.mark.parametrize("gradient", ["auto", "dense"])
def test_irons_tuck_on_batches(page, gradient, by_args):
    test_batches.test_each_equals_its_solve_alone(gradient, page["IronsTuck"](3000, 1e-11), by_args)


def test_richardson_on_batches_leaves_out_what_has_ended(page):
    Q, gain, x, h0 = test_batches.ragged()
    sizes = []

    def update(h, g, x):
        sizes.append(len(h))
        return torch.tanh(g * (h @ Q.T) + x)

    solution = sg.steady_state(
        update,
        h0,
        gain,
        x,
        batch_dims=1,
        forward=sg.Picard(3000, 1e-11),
        gradient=sg.Implicit(page["Richardson"](max_steps=5000)),
    )
    sizes.clear()
    (grad,) = torch.autograd.grad(solution.value.square().sum(), Q)
    assert min(sizes) < len(h0)
    exact = sg.steady_state(lambda h: torch.tanh(gain * (h @ Q.T) + x), h0, forward=sg.Picard(3000, 1e-12), gradient="dense")
    (expected,) = torch.autograd.grad(exact.value.square().sum(), Q)
    assert solution.adjoint.converged.all()
    assert relative(grad, expected) < 1e-7


def test_irons_tuck_on_the_adjoint_equation(page):
    problem = Affine.of("random", 0.5)
    b = torch.randn(20, dtype=torch.float64)
    solution = sg.steady_state(
        problem,
        torch.zeros(20, dtype=torch.float64),
        forward=sg.Picard(2000, 1e-12),
        gradient=sg.Implicit(page["IronsTuck"](500, 1e-10)),
    )
    grads = torch.autograd.grad(solution.value @ b, (problem.J, problem.c))
    assert max(relative(g, e) for g, e in zip(grads, problem.gradients(b), strict=True)) < 1e-7


def test_a_forward_solver_that_diverges_is_reported(page):
    with pytest.warns(sg.SteadyStateWarning, match="by IronsTuck"):
        sg.steady_state(lambda h: h + 1.0, torch.zeros(3), forward=page["IronsTuck"](50))


@dataclass(frozen=True, repr=False)
class Naive(FixedPointSolver):
    """Damped steps, written as they come to mind: the residual is the last step, which was not taken at the value."""

    damping: float = 0.2

    def init(self, problem, start):
        return start, None

    def step(self, problem, state):
        h = state[0]
        return (1 - self.damping) * problem(h) + self.damping * h, h

    def value(self, state):
        return state[0]

    def residual(self, state):
        return None if state[1] is None else state[0] - state[1]


@pytest.mark.parametrize("damping", [0.2, 0.9])
@pytest.mark.parametrize("radius", [0.5, 0.9])
def test_the_residual_of_a_naive_solver_is_confirmed_by_a_product(damping, radius):
    J, b = test_linear.matrix("random", radius), test_linear.rhs()
    operator = test_linear.DenseMap(J)
    solved = Recurrence(Naive(9000, 1e-9, damping=damping)).solve(operator, b)
    true = (b - solved.z + operator.vjp(solved.z)).norm() / b.norm()
    assert solved.residual[0] == pytest.approx(float(true), rel=1e-3)


@pytest.mark.parametrize("forward", [sg.Anderson(300, 1e-11), sg.Broyden(300, 1e-11)], ids=repr)
def test_the_distance_of_an_accelerated_solver_falls_with_its_residual_beside_easier_problems(forward):
    gain = torch.linspace(0.01, 0.9, 8, dtype=torch.float64).unsqueeze(1)
    Q = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    x = torch.randn(8, 6, dtype=torch.float64)
    solution = sg.steady_state(
        lambda h, g, x: g * (h @ Q.T) + x, torch.zeros(8, 6, dtype=torch.float64), gain, x, batch_dims=1, forward=forward
    )
    exact = torch.stack(
        [torch.linalg.solve(torch.eye(6, dtype=torch.float64) - g * Q, row) for g, row in zip(gain, x, strict=True)]
    )
    error = ((solution.value - exact).norm(dim=1) / exact.norm(dim=1)).max()
    assert solution.converged.all()
    assert error / 10 < solution.error_estimate < 1e-8


class SumAndRest(NamedTuple):
    z: torch.Tensor
    r: torch.Tensor


def test_a_solver_that_changes_b_in_place_is_refused(page):
    class Careless(page["Richardson"]):
        def init(self, problem, start):
            return SumAndRest(start, problem.b.clone())

        def step(self, problem, state):
            rest = problem.vjp(state.r)
            problem.b.mul_(0.5)
            return SumAndRest(state.z + state.r, rest)

    with pytest.raises(sg.SteadyStateError, match="changed b in place"):
        Careless(steps=5).solve(test_linear.DenseMap(test_linear.matrix("random", 0.5)), test_linear.rhs())


def test_a_solver_that_changes_its_state_in_place_is_refused(page):
    """The last states tell the error: were they all one, it would be said to be 0."""

    class Careless(page["Richardson"]):
        def init(self, problem, start):
            return SumAndRest(start.clone(), problem.b.clone())

        def step(self, problem, state):
            state.z.add_(state.r)
            state.r.copy_(problem.vjp(state.r))
            return state

    with pytest.raises(sg.SteadyStateError, match="changed its state in place"):
        Careless(steps=30).solve(test_linear.DenseMap(test_linear.matrix("random", 0.5)), test_linear.rhs())


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda h: (h[:1], h), r"holds a tensor of shape \(1, 2\) for 3 problems"),
        (lambda h: (h, h[:, 0]), r"holds a tensor of shape \(3,\) for 3 problems"),
        (lambda h: (h[:, :1], h), r"a value of shape \(3, 1\)"),
        (lambda h: (h.double(), h), "a value of shape .* and torch.float64"),
    ],
)
def test_a_step_that_leads_to_another_kind_of_state_is_refused(step, message):
    class Other(Naive):
        def step(self, problem, state):
            return step(problem(state[0]))

    with pytest.raises(sg.SteadyStateError, match=message):
        sg.steady_state(lambda h: 0.5 * h, torch.ones(3, 2), batch_dims=1, forward=Other())


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (lambda h: [h, torch.zeros(())], "counts the problems"),
        (lambda h: [h, torch.zeros(h.shape[1])], "counts the problems"),
        (lambda h: object(), "holds no tensor"),
    ],
)
def test_a_state_that_cannot_be_indexed_by_problem_is_refused(state, message):
    class Other(Naive):
        def init(self, problem, start):
            return state(start)

    with pytest.raises(sg.SteadyStateError, match=message):
        sg.steady_state(lambda h: 0.5 * h, torch.ones(3, 2), batch_dims=1, forward=Other())


@pytest.mark.parametrize("kind", [lambda h, b: [h, b], lambda h, b: {0: h, 1: b}], ids=["list", "dict"])
def test_states_may_be_lists_and_dicts(kind):
    class Other(Naive):
        def init(self, problem, start):
            return kind(start, problem(start))

        def step(self, problem, state):
            return kind(problem(state[0]), state[0])

        def residual(self, state):
            return state[0] - state[1]

    gain = torch.tensor([[0.1], [0.9]], dtype=torch.float64)
    start = torch.zeros(2, 3, dtype=torch.float64)
    solution = sg.steady_state(lambda h, g: g * h + 1.0, start, gain, batch_dims=1, forward=Other(500, 1e-9))
    assert torch.allclose(solution.value, (1 / (1 - gain)).expand(2, 3), rtol=1e-6)


def test_a_solver_without_a_residual_is_told_so():
    class Silent(Naive):
        def residual(self, state):
            return None

    with pytest.raises(sg.SteadyStateError, match="no residual after 1 steps"):
        sg.steady_state(lambda h: 0.5 * h, torch.ones(3), forward=Silent())
