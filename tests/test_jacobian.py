"""Products with J and its transpose: adjoint to each other, equal to the dense J, counted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import steadygrad as sg
from steadygrad.state import Layout, leaves_of
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian


def linearised(function, state):
    layout = Layout.of(state)
    return Jacobian(Update(function, (), layout), layout.flatten(leaves_of(state)))


def nested_case(sizes, seed):
    """A random smooth map on a nested state."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes)
    A = torch.randn(total, total, generator=generator, dtype=torch.float64)
    A.requires_grad_()

    def update(h):
        new = torch.tanh(A @ torch.cat(h)) * torch.cat(h).sin()
        return tuple(new.split(sizes))

    return update, tuple(torch.randn(n, generator=generator, dtype=torch.float64) for n in sizes)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_vjp_and_jvp_are_adjoint(sizes, seed):
    jacobian = linearised(*nested_case(sizes, seed))
    u, v = (torch.randn(1, sum(sizes), dtype=torch.float64) for _ in range(2))
    left, right = (u * jacobian.jvp(v)).sum(), (jacobian.vjp(u) * v).sum()
    assert torch.allclose(left, right, rtol=1e-10, atol=1e-12)


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_products_match_the_dense_jacobian(sizes, seed):
    update, state = nested_case(sizes, seed)
    jacobian = linearised(update, state)
    flat = torch.cat(state)
    J = torch.autograd.functional.jacobian(lambda h: torch.cat(update(h.split(sizes))), flat)
    v = torch.randn(1, sum(sizes), dtype=torch.float64)
    assert torch.allclose(jacobian.dense()[0], J)
    assert torch.allclose(jacobian.vjp(v)[0], J.T @ v[0])
    assert torch.allclose(jacobian.jvp(v)[0], J @ v[0])
    assert jacobian.products == sum(sizes) + 2


def test_operation_without_second_derivative():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            ctx.save_for_backward(h)
            return h**3 / 10

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return 0.3 * g * ctx.saved_tensors[0] ** 2

    a = torch.tensor(0.5, requires_grad=True)
    value = sg.steady_state(lambda h: Cube.apply(h) + a, torch.zeros(3), gradient="neumann-rbp").value
    value.sum().backward()  # needs Jᵀ only
    assert a.grad.isfinite()


@pytest.mark.parametrize("gradient", ["cg-rbp", "neumann-rbp"])
def test_leaf_collects_no_gradient(gradient):
    a = torch.tensor(0.5, requires_grad=True)
    solution = sg.steady_state(lambda h: a * h + 1, torch.zeros(3), gradient=gradient)
    jacobian = solution.value.grad_fn.adjoint.jacobian
    solution.value.sum().backward()
    assert all(leaf.grad is None for leaf in jacobian.inputs)
