"""The solvers of docs/extending.md, as they stand there, in the tests that the built-in ones go through."""

import re
from pathlib import Path

import pytest
import torch

import steadygrad as sg
import test_batches
import test_linear
from problems import FAMILIES, Affine, relative

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


@pytest.mark.parametrize("by_args", [True, False], ids=["args", "closure"])
@pytest.mark.parametrize("gradient", ["auto", "dense"])
def test_irons_tuck_on_batches(page, gradient, by_args):
    test_batches.test_each_equals_its_solve_alone(gradient, page["IronsTuck"](3000, 1e-11), by_args)


def test_richardson_on_batches_leaves_out_what_has_ended(page):
    Q, gain, x, h0 = test_batches.ragged()
    solution = sg.steady_state(
        lambda h, g, x: torch.tanh(g * (h @ Q.T) + x),
        h0,
        gain,
        x,
        batch_dims=1,
        forward=sg.Picard(3000, 1e-11),
        gradient=sg.Implicit(page["Richardson"](max_steps=5000)),
    )
    (grad,) = torch.autograd.grad(solution.value.square().sum(), Q)
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
