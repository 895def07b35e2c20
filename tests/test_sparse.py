"""The sparse matrix against dense algebra: values, derivatives of every order, copies, and what it refuses."""

import copy
import pickle

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import steadygrad as sg
from steadygrad.sparse import SparseMatrix


def drawn(rows=5, columns=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return SparseMatrix.of_dense(dense * (dense > 0.3)), dense * (dense > 0.3)


def test_sparse_product_is_the_dense_one_with_equal_places_added():
    rows, columns = torch.tensor([0, 2, 0, 1, 2]), torch.tensor([1, 3, 1, 0, 0])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    A = SparseMatrix.of_entries(rows, columns, values, (3, 4))
    dense = torch.zeros(3, 4, dtype=torch.float64).index_put_((rows, columns), values, accumulate=True)
    h = torch.randn(4, 2, dtype=torch.float64)
    assert torch.equal(A.dense(), dense)
    torch.testing.assert_close(A @ h, dense @ h)
    torch.testing.assert_close(A @ h.float(), (dense @ h).float())
    torch.testing.assert_close(SparseMatrix.of_dense(dense) @ h, dense @ h)
    torch.testing.assert_close(A.with_values(2 * A.values) @ h, 2 * dense @ h)


def test_sparse_product_has_first_and_second_derivatives():
    A = SparseMatrix.of_dense((torch.rand(5, 7, dtype=torch.float64) > 0.5).double())
    h = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda h: A @ h, h)
    assert gradgradcheck(lambda h: (A @ h).sin(), h)
    (grad,) = torch.autograd.grad((A @ h).sum(), h)
    torch.testing.assert_close(grad, A.dense().T @ torch.ones(5, 3, dtype=torch.float64))


def test_a_jacobian_vector_product_by_two_backward_passes_is_the_dense_one():
    A, dense = drawn()
    h = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    u = torch.zeros(5, 2, dtype=torch.float64, requires_grad=True)
    v = torch.randn(7, 2, dtype=torch.float64)
    (back,) = torch.autograd.grad((A @ h).tanh(), h, u, create_graph=True)
    (forward,) = torch.autograd.grad(back, u, v)
    torch.testing.assert_close(forward, (1 - (dense @ h).tanh() ** 2) * (dense @ v))


def test_third_derivatives_are_the_dense_ones():
    A, dense = drawn()

    def third(product):
        h = torch.linspace(-1, 1, 7, dtype=torch.float64).unsqueeze(1).requires_grad_()
        value = product(h).exp().sum()
        for _ in range(3):
            (value,) = torch.autograd.grad(value.sum(), h, create_graph=True)
        return value

    torch.testing.assert_close(third(lambda h: A @ h), third(lambda h: dense @ h))


@pytest.mark.parametrize("gradient", ["auto", "cg-rbp", "lsqr", sg.BPTT()], ids=str)
def test_steady_states_through_it_have_the_gradient_of_the_dense_matrix(gradient):
    A, dense = drawn(6, 6)
    scale = 0.5 / float(torch.linalg.matrix_norm(dense, 2))
    found = []
    for product in (lambda h: A @ h, lambda h: dense @ h):
        x = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(1).requires_grad_()
        forward = sg.Picard(max_steps=200, rtol=1e-13)
        h = sg.steady_state(
            lambda h, f=product, x=x: (scale * f(h) + x).tanh(), 0 * x.detach(), forward=forward, gradient=gradient
        )
        found.append(torch.autograd.grad(h.value.square().sum(), x)[0])
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_copies_and_pickles_multiply_alike():
    A, dense = drawn()
    h = torch.randn(7, 1, dtype=torch.float64)
    before = A @ h
    assert copy.deepcopy(A) is A
    assert torch.equal(pickle.loads(pickle.dumps(A)) @ h, before)
    assert repr(A) == f"SparseMatrix(5 × 7, {int((dense != 0).sum())} entries)"


def test_bad_input_is_refused():
    ones, numbers = torch.ones(2), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"must be \(count,\) each; got \(2,\), \(2,\), \(3,\)"):
        SparseMatrix.of_entries(numbers, numbers, torch.ones(3), (2, 2))
    with pytest.raises(ValueError, match=r"columns must be int64 from 0 to 0"):
        SparseMatrix.of_entries(numbers, numbers, ones, (2, 1))
    with pytest.raises(ValueError, match=r"rows must be int64"):
        SparseMatrix.of_entries(numbers.int(), numbers, ones, (2, 2))
    with pytest.raises(ValueError, match=r"values need a gradient, which would be lost"):
        SparseMatrix.of_entries(numbers, numbers, ones.requires_grad_(), (2, 2))
    with pytest.raises(ValueError, match=r"cannot be multiplied with \(8,\)"):
        _ = drawn()[0] @ torch.ones(8)
