"""Products with Jᵀ that are taken without torch's engine: the same bits, and the engine's where it alone is right."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import steadygrad as sg
from steadygrad.state import Layout
from steadygrad.update import Update
from steadygrad.update.jacobian import Jacobian
from steadygrad.update.walk import Walk

torch.manual_seed(0)
W = (0.3 * torch.randn(6, 6, dtype=torch.float64)).requires_grad_()
X = torch.randn(4, 6, dtype=torch.float64)
MASK = torch.rand(4, 6, dtype=torch.float64)
NORM = nn.GroupNorm(2, 6).double()


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, v):  # pyright: ignore[reportIncompatibleMethodOverride]
        return 0.5 * v


def hooked(h):
    y = h @ W.T
    y.register_hook(lambda v: 0.5 * v)
    return torch.tanh(y + X)


WALKED = {
    "tanh": lambda h: torch.tanh(h @ W.T + X),
    "linear": lambda h: nn.functional.linear(h, W).relu() + X,
    "norm": lambda h: 0.3 * NORM(h) + X,
    "frozen": lambda h: torch.tanh(h @ W.detach().T + X),
    "reshaped": lambda h: (h.reshape(2, 2, 6).transpose(0, 1).reshape(4, 6) @ W).sin(),
}
BY_THE_ENGINE = {
    "fork": lambda h: torch.tanh(h @ W.T) + 0.1 * h,
    "function": lambda h: torch.tanh(Clipped.apply(h) @ W.T + X),
    "hook": hooked,
    "broadcast": lambda h: torch.tanh(h.mean(dim=0, keepdim=True) @ W.T + X),
    "max": lambda h: MASK * (W @ h.T).max(0, keepdim=True).values.T + X,
    "gather": lambda h: MASK * (h @ W.T).gather(1, torch.zeros(4, 1, dtype=torch.int64)) + X,
    "mask": lambda h: X * (MASK * (h @ W.T)).sum(),
    "dtype": lambda h: (h @ W.T).float() * MASK,
    "second of two": lambda h: torch.tanh(h @ W.T + X).repeat(1, 2).chunk(2, -1)[1],
    "no h": lambda h: torch.tanh(X @ W.T),
    "in place": lambda h: (h @ W.T).mul_(0.5).add(X).index_fill(0, torch.tensor([1]), 0.0) * h,
}


def jacobian(update):
    h = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    layout = Layout.of(h, 0)
    return Jacobian(Update(update, (), layout), layout.flatten([h]))


def products(update, count=5):
    """Jᵀb, (Jᵀ)²b, … by the engine and inside of `walking`, and how often the nodes were walked."""
    J = jacobian(update)
    b = torch.randn(1, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def powers():
        v, found = b, []
        for _ in range(count):
            v = J.vjp(v)
            found.append(v)
        return [*found, *J.add_terms(b, b, count, 0)[:2]]

    walks = []
    plain, walked = powers(), Walk._walked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Walk, "_walked", lambda self, v: (walks.append(1), walked(self, v))[1])
        return plain, J.walking(powers), len(walks)


@pytest.mark.parametrize("name", WALKED)
def test_walks_give_the_bits_of_the_engine(name):
    plain, found, walks = products(WALKED[name])
    assert all(map(torch.equal, plain, found))
    assert walks == 9  # after the first, which is compared


@pytest.mark.parametrize("name", BY_THE_ENGINE)
def test_what_only_the_engine_does_right_is_left_to_it(name):
    plain, found, walks = products(BY_THE_ENGINE[name])
    assert all(map(torch.equal, plain, found))
    assert not walks


@pytest.mark.parametrize("solver", [sg.GMRES(), sg.LSQR(), sg.NormalCG()], ids=repr)
def test_a_state_that_f_promotes_gets_products_of_its_own_dtype(solver):
    """Those of float64 may have the same values, to the last bit, and are no vectors of the solver's."""
    W = (0.95 * torch.linalg.qr(torch.randn(6, 6))[0]).requires_grad_()

    def gradient():
        solution = sg.steady_state(
            lambda h: torch.tanh((h + 0.1 * X).float() @ W),
            torch.zeros(4, 6),
            forward=sg.Picard(500, 1e-6),
            gradient=sg.Implicit(solver),
        )
        return torch.autograd.grad(solution.value.sum(), W)[0]

    found = gradient()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steadygrad.gradient.adjoint.WALKED", 10**9)
        assert torch.equal(found, gradient())


def test_hooks_that_come_after_f_are_called_at_every_product():
    kept, called = [], []

    def update(h):
        kept.append(h @ W.T)
        return torch.tanh(kept[-1] + X)

    J = jacobian(update)
    kept[-1].register_hook(lambda v: called.append(1))
    v = torch.ones(1, 24, dtype=torch.float64)
    J.walking(lambda: [J.vjp(v) for _ in range(5)])
    assert len(called) == 5


def test_a_checkpoint_inside_f_which_computes_once_a_run_is_left_to_the_engine():
    def update(h):
        return checkpoint(lambda h: torch.tanh(h @ W.T + X), h, use_reentrant=False)

    plain, found, walks = products(update)
    assert all(map(torch.equal, plain, found))
    assert walks <= 2


def test_a_walk_in_another_run_of_the_engine_is_not_taken():
    J = jacobian(WALKED["tanh"])
    b = torch.ones(1, 24, dtype=torch.float64)
    expected, found = J.vjp(b), []

    class Within(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, v):  # pyright: ignore[reportIncompatibleMethodOverride]
            found.append(J.vjp(b))
            return v

    def call():
        J.vjp(b)
        with torch.enable_grad():
            x = torch.ones(1, requires_grad=True)
            torch.autograd.grad(Within.apply(x), x)

    J.walking(call)
    assert torch.equal(found[0], expected)


def test_errors_inside_pass_and_leave_products_as_they_were():
    J = jacobian(WALKED["tanh"])
    b = torch.ones(1, 24, dtype=torch.float64)
    expected = J.vjp(b)
    with pytest.raises(ZeroDivisionError):
        J.walking(lambda: 1 / 0)
    assert torch.equal(J.vjp(b), expected)


def test_what_was_changed_in_place_is_refused_while_walking():
    scale = torch.ones(4, 6, dtype=torch.float64)
    J = jacobian(lambda h: torch.tanh(h @ W.T) * scale)
    b = torch.ones(1, 24, dtype=torch.float64)

    def call():
        J.vjp(b)
        scale.mul_(2)
        J.vjp(b)

    with pytest.raises(sg.SteadyStateError, match="modified by an inplace operation"):
        J.walking(call)


@pytest.mark.parametrize("backward", [lambda loss: loss.backward(), lambda loss: torch.autograd.grad(loss, W)])
@pytest.mark.parametrize("gradient", [sg.Implicit(sg.Neumann(steps=100)), sg.Implicit(sg.GMRES())], ids=repr)
def test_a_solve_walks_and_its_gradient_is_that_of_dense_algebra(backward, gradient):
    x = X.clone().requires_grad_()
    solution = sg.steady_state(
        lambda h: torch.tanh(h @ W.T + x), torch.zeros_like(X), forward=sg.Picard(500, 1e-13), gradient=gradient
    )
    walks, walked = [], Walk._walked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Walk, "_walked", lambda self, v: (walks.append(1), walked(self, v))[1])
        found = backward(solution.value.sum()) or (W.grad,)
    h = solution.value.detach()
    slope = 1 - torch.tanh(h @ W.detach().T + X).square()
    z = torch.stack(
        [
            torch.linalg.solve(
                torch.eye(6, dtype=torch.float64) - slope[i].unsqueeze(1).mul(W.detach()).T, torch.ones(6, dtype=torch.float64)
            )
            for i in range(4)
        ]
    )
    expected = (z * slope).T @ h
    W.grad = None
    assert walks
    torch.testing.assert_close(found[0], expected, rtol=1e-8, atol=1e-10)


def test_several_cotangents_at_once():
    x = X.clone().requires_grad_()
    cotangents = torch.randn(3, 4, 6, dtype=torch.float64)
    solution = sg.steady_state(
        lambda h: torch.tanh(h @ W.T + x),
        torch.zeros_like(X),
        forward=sg.Picard(500, 1e-13),
        gradient=sg.Implicit(sg.Neumann(steps=100)),
    )
    (found,) = torch.autograd.grad(solution.value, x, cotangents, is_grads_batched=True, retain_graph=True)
    for one, cotangent in zip(found, cotangents, strict=True):
        torch.testing.assert_close(one, torch.autograd.grad(solution.value, x, cotangent, retain_graph=True)[0])


@pytest.mark.parametrize(
    "gradient", [sg.Implicit(sg.Neumann(60)), sg.Implicit(sg.Neumann(rtol=1e-9)), "auto", "gmres", "rbp", "dense"], ids=str
)
@pytest.mark.parametrize(
    "update",
    [
        lambda h, B, w: w * (B @ h).max(0, keepdim=True).values,
        lambda h, B, w: w * (B @ h).topk(1, dim=0).values,
        lambda h, B, w: w * (B @ h).gather(0, torch.ones(1, 3, dtype=torch.int64)),
        lambda h, B, w: w * (torch.eye(4, 3, dtype=B.dtype) * (B @ h)).sum(),
    ],
    ids=["max", "topk", "gather", "sum"],
)
def test_a_first_cotangent_of_zeros_proves_nothing(update, gradient):
    """A node may take more than it expects and give the same for a sparse cotangent: gradients were up to 13 % off."""
    B, w = 0.3 * torch.randn(4, 4, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    F = lambda h: update(h, B, w) + x  # noqa: E731
    solution = sg.steady_state(F, torch.zeros(4, 3, dtype=torch.float64), forward=sg.Picard(500, 1e-13), gradient=gradient)
    (found,) = torch.autograd.grad(solution.value[0].sum(), x)
    J = torch.autograd.functional.jacobian(F, solution.value.detach()).reshape(12, 12)
    b = torch.zeros(4, 3, dtype=torch.float64)
    b[0] = 1.0
    expected = torch.linalg.solve(torch.eye(12, dtype=torch.float64) - J.T, b.flatten()).reshape(4, 3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_hooks_that_do_nothing_at_first_are_called_for_every_product():
    U = 1.5 * torch.diag(torch.ones(5, dtype=torch.float64), 1)
    x = torch.zeros(6, dtype=torch.float64, requires_grad=True)

    def update(h):
        y = U @ h
        if y.requires_grad:
            y.register_hook(lambda v: v.clamp(-2, 2))
        return y + x

    solution = sg.steady_state(update, torch.zeros(6, dtype=torch.float64), gradient=sg.Implicit(sg.Neumann(steps=30)))
    (found,) = torch.autograd.grad(solution.value[0], x)
    assert found.tolist() == [1, 1.5, 2.25, 3, 3, 3]
