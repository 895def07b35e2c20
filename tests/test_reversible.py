"""The reversible iteration: its steady state, its gradient by undoing the steps, and what it says when they cannot be undone."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

import steadygrad as sg
from problems import relative, tanh_problem
from steadygrad.fixedpoint.reversible import Coupled

DOUBLE = torch.float64


def unrolled(F, h0, steps, damping):
    """The iteration written down, for autograd."""
    y = z = h0
    for _ in range(steps):
        y = damping * y + (1 - damping) * F(z)
        z = damping * z + (1 - damping) * F(y)
    return z


def problem(dtype=DOUBLE):
    F, W, x, h0 = tanh_problem(gain=0.9, dtype=dtype)
    return F, W, x, torch.randn(h0.shape, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("steps", [1, 2, 7, 40, 200])
@pytest.mark.parametrize("damping", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("gradient", [sg.BPTT(), sg.BPTT(checkpoints=3), sg.BPTT(memory="sqrt"), sg.BPTT(memory="log")], ids=repr)
def test_its_gradient_is_that_of_its_steps(gradient, damping, steps):
    F, W, x, h0 = problem()
    forward = sg.Reversible(max_steps=steps, rtol=0, damping=damping)
    value = sg.steady_state(F, h0, forward=forward, gradient=gradient, on_failure="raise").value
    expected = unrolled(F, h0, steps, damping)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    loss = [v.sin().sum() for v in (value, expected)]
    for a, b in zip(*(torch.autograd.grad(part, [W, x, h0]) for part in loss), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-12)


def test_its_steady_state_is_that_of_f():
    F, W, x, h0 = problem()
    forward = sg.Reversible(max_steps=500, rtol=1e-13)
    values = [sg.steady_state(F, h0, forward=f, gradient="auto") for f in (forward, sg.Picard(max_steps=500, rtol=1e-13))]
    torch.testing.assert_close(values[0].value, values[1].value, rtol=1e-11, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(v.value.sum(), [W, x]) for v in values), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-12)
    assert values[0].converged


def test_a_cycle_of_two_states_is_not_steady():
    """F(y) = z and F(z) = y: the iteration rests, F does not."""
    forward, start = sg.Reversible(), Coupled(torch.zeros(1, 2), torch.ones(1, 2), None)
    state = forward.step(lambda h: 1 - h, start)
    assert torch.equal(state.y, start.y)
    assert torch.equal(state.z, start.z)
    assert torch.equal(forward.residual(state), torch.ones(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("damping", [0.2, 0.5, 0.8])
def test_with_states_kept_by_itself_it_holds_for_any_number_of_steps(damping, dtype):
    F, W, _, h0 = problem(dtype)
    forward = sg.Reversible(max_steps=300, rtol=0, damping=damping)
    value = sg.steady_state(F, h0, forward=forward, gradient=sg.BPTT(), on_failure="raise").value
    (found,) = torch.autograd.grad(value.sum(), W)
    (expected,) = torch.autograd.grad(unrolled(F, h0, 300, damping).sum(), W)
    assert relative(found, expected) < (1e-5 if dtype == torch.float32 else 1e-10)


def test_what_cannot_be_undone_is_reported():
    F, _, _, h0 = problem(torch.float32)
    for steps in (12, 40):
        forward = sg.Reversible(max_steps=steps, rtol=0, damping=0.2, every=None)
        solution = sg.steady_state(F, h0, forward=forward, gradient=sg.BPTT())
        with pytest.warns(sg.SteadyStateWarning, match=r"did not lead back to its start.*every=.*more damping.*BPTT\(memory="):
            solution.value.sum().backward()
    few = sg.Reversible(max_steps=3, rtol=0, damping=0.5, every=None)
    sg.steady_state(F, h0, forward=few, gradient=sg.BPTT(), on_failure="raise").value.sum().backward()


@pytest.mark.parametrize("damping", [0.2, 0.5, 0.9])
def test_the_growth_of_errors_is_an_eigenvalue(damping):
    """(e_y, e_z) ↦ (e_y, (e_z + (1−d)·e_y)/d) ↦ ((e_y + (1−d)·e_z)/d, e_z), where all errors add up and ‖J‖ = 1."""
    d = damping
    first = torch.tensor([[1.0, 0.0], [(1 - d) / d, 1 / d]], dtype=DOUBLE)
    second = torch.tensor([[1 / d, (1 - d) / d], [0.0, 1.0]], dtype=DOUBLE)
    largest = torch.linalg.eigvals(second @ first).abs().max().item()
    assert sg.Reversible(damping=d).growth == pytest.approx(largest)


def test_the_memory_of_one_step():
    """However many steps, as many states are alive."""

    def most(steps):
        images, count = [], 0
        W = (0.5 * torch.eye(8, dtype=DOUBLE)).requires_grad_()

        def update(h):
            nonlocal images, count
            image = torch.tanh(h @ W + 0.3)
            images = [seen for seen in images if not seen.expired()]
            count = max(count, len(images))
            images.append(StorageWeakRef(image.untyped_storage()))
            return image

        forward = sg.Reversible(max_steps=steps, rtol=0, damping=0.9, every=None)
        h0 = torch.zeros(2, 8, dtype=DOUBLE)
        sg.steady_state(update, h0, forward=forward, gradient=sg.BPTT(), on_failure="ignore").value.sum().backward()
        return count

    assert most(50) == most(10) <= 6


def test_bad_input():
    for damping in (0.0, 1.0, -0.5):
        with pytest.raises(ValueError, match="damping must be above 0"):
            sg.Reversible(damping=damping)
    with pytest.raises(ValueError, match="every must be at least 1"):
        sg.Reversible(every=0)
    with pytest.raises(TypeError, match="every must be a whole number"):
        sg.Reversible(every="often")
    for gradient in ("tbptt", "artbp"):
        with pytest.raises(TypeError, match="forward must be Picard"):
            sg.steady_state(torch.cos, torch.ones(2), forward=sg.Reversible(), gradient=gradient)
    with pytest.raises(ValueError, match="derivatives"):
        sg.steady_state(torch.cos, torch.ones(2), forward=sg.Reversible(), gradient=sg.BPTT(), derivatives=2)
