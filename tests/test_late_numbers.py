"""Numbers of a certificate that are worked out, or read, when somebody asks: they are those of the solve, whatever came after it."""

import copy
import math
import pickle

import pytest
import torch

import steadygrad as sg
from problems import relative
from steadygrad.iteration.error import Errors
from steadygrad.solution import worst

COUNT = sg.Picard(max_steps=6, rtol=0)


def problem(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(5, 5, generator=generator, dtype=dtype)
    W = (0.6 * W / torch.linalg.matrix_norm(W, 2)).requires_grad_()
    return W, torch.randn(5, generator=generator, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("gradient", ["neumann-rbp", "auto", "gmres", "dense"])
def test_the_change_of_the_loss_is_not_that_of_a_gradient_changed_in_place(gradient):
    """The gradient of p is z itself, in the same memory."""
    W, p = problem()
    found = []
    for factor in (1.0, 1e-6):
        solution = sg.steady_state(lambda h: torch.tanh(W @ h) + p, torch.zeros(5).double(), forward=COUNT, gradient=gradient)
        (grad,) = torch.autograd.grad(solution.value.sum(), p)
        grad.mul_(factor)
        found.append(solution.adjoint.remaining)
    assert found[0] == found[1] != 0


def test_states_that_f_has_written_into_since_tell_no_distance():
    _, p = problem()
    kept = []

    def keeps(h):
        kept.append(torch.tanh(0.5 * h) + p)
        return kept[-1]

    with torch.no_grad():
        solution, other = (sg.steady_state(keeps, torch.zeros(5).double(), forward=COUNT) for _ in range(2))
        distance = other.error_estimate
        for state in kept:
            state.zero_()
    assert 0 < distance < 0.1
    assert math.isnan(solution.error_estimate)
    assert other.error_estimate == distance


@pytest.mark.parametrize("forward", [sg.Picard(max_steps=400, rtol=0), sg.Picard(max_steps=400, rtol=0, damping=0.1)], ids=repr)
def test_a_count_that_ends_without_a_number_is_infinitely_far(forward):
    _, p = problem()
    with pytest.warns(sg.SteadyStateWarning, match="NONFINITE.*distance from the steady state inf"):
        solution = sg.steady_state(lambda h: 1e3 * h * h + p + 1, torch.zeros(5).double(), forward=forward)
    assert solution.error_estimate == math.inf


def test_two_threads_that_ask_at_once():
    """One works it out and lets go of what it was worked out from, while the other is about to."""
    interrupted = []

    class Interrupted(Errors):
        def __getattribute__(self, name):
            found = super().__getattribute__(name)
            if name == "_known" and not interrupted:
                interrupted.append(True)
                assert self.values() == [0.5]  # the other thread
            return found

    errors = Interrupted(lambda: [0.5])
    assert errors.values() == [0.5]
    assert interrupted
    assert errors.values() == [0.5]


def test_certificates_of_solvers_that_only_the_program_knows_are_copied_and_stored():
    class Own(sg.GMRES):
        pass

    W, p = problem()
    solution = sg.steady_state(lambda h: torch.tanh(W @ h) + p, torch.zeros(5).double(), gradient=sg.Implicit(Own()))
    solution.value.sum().backward()
    stored = pickle.loads(pickle.dumps(solution.adjoint))
    for other in (stored, copy.deepcopy(solution.adjoint)):
        assert (other.solver, other.remaining) == (solution.adjoint.solver, solution.adjoint.remaining)
        assert other.error_estimate == solution.adjoint.error_estimate


def test_one_number_that_is_none_is_the_worst():
    assert worst([1.0, 2.0]) == 2.0
    assert all(math.isnan(worst(numbers)) for numbers in ([1.0, math.nan], [math.nan, 1.0]))
    W, p = problem()
    with pytest.warns(sg.SteadyStateWarning, match="NONFINITE"):
        solution = sg.steady_state(
            lambda h, q: torch.tanh(h @ W.T) + q, torch.zeros(3, 5).double(), p.repeat(3, 1), batch_dims=1, gradient="gmres"
        )
        cotangent = torch.ones(3, 5).double()
        cotangent[1, 0] = math.nan
        torch.autograd.grad(solution.value, W, cotangent)
    assert math.isnan(solution.adjoint.residual)


def test_an_f_that_has_changed_since_is_not_compared_with_what_it_was():
    generator = torch.Generator().manual_seed(1)
    W = torch.randn(40, 40, generator=generator)
    W = (0.9 * W / torch.linalg.eigvals(W).abs().max()).requires_grad_()
    p, c = torch.randn(40, generator=generator, requires_grad=True), [1.0]
    b = torch.randn(40, generator=generator)
    found = []
    for later in (1.0, 1.05):
        c[0] = 1.0
        solution = sg.steady_state(
            lambda h: torch.tanh(W @ h) * c[0] + p,
            torch.zeros(40),
            forward=sg.Picard(rtol=1e-6, max_steps=1000),
            gradient=sg.Implicit(sg.GMRES(rtol=3e-3)),
        )
        c[0] = later
        found.append(torch.autograd.grad(solution.value @ b, (W, p))[0])
    assert relative(found[1], found[0]) < 1e-6
    assert solution.adjoint.gradient_error is not None
    assert not solution.adjoint.gradient_error > 0.01
