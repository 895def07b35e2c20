"""Under transforms: every gradient method, every forward solver, roots, minima and layers, against what they give without."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap

import steadygrad as sg

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")

F64 = {"dtype": torch.float64}
TIGHT = sg.Picard(max_steps=500, rtol=1e-13)
EXACT = [
    sg.Implicit(sg.Auto()),
    sg.Implicit(sg.Picard(max_steps=500, rtol=1e-12)),
    sg.Implicit(sg.Anderson(max_steps=100, rtol=1e-12)),
    sg.Implicit(sg.NormalCG()),
    sg.Implicit(sg.LSQR()),
    sg.Implicit(sg.GMRES()),
    sg.Implicit(sg.BiCGSTAB()),
    sg.Implicit(sg.Neumann(max_steps=500)),
    sg.Implicit(sg.Dense()),
    sg.BPTT(),
]
TRUNCATED = [
    sg.Implicit(sg.Neumann(steps=6)),
    sg.Implicit(sg.Neumann(steps=0)),
    sg.Implicit(sg.NormalCG(steps=2)),
    sg.Phantom(steps=3),
    sg.TBPTT(steps=4),
    sg.ARTBP(seed=3),
    sg.BPTT(),
]


@pytest.fixture
def given():
    generator = torch.Generator().manual_seed(1)
    W = 0.25 * torch.randn(4, 4, generator=generator, **F64)
    return W, torch.randn(3, 4, generator=generator, **F64)


def steady(W, x, **options):
    return sg.steady_state(lambda h: torch.tanh(W @ h + x), torch.zeros(4, **F64), **{"forward": TIGHT, **options}).value


def unrolled(W, x):
    h = torch.zeros(4, **F64)
    for _ in range(150):
        h = torch.tanh(W @ h + x)
    return h


def per_sample(f, W, X):
    return vmap(grad(lambda W, x: f(W, x).square().sum(), argnums=(0, 1)), (None, 0))(W, X)


def forward_jacobian(f, W, X):
    return jacfwd(lambda W: vmap(f, (None, 0))(W, X))(W)


def reverse_jacobian(f, W, X):
    return jacrev(lambda W: vmap(f, (None, 0))(W, X))(W)


@pytest.mark.parametrize("transform", [per_sample, forward_jacobian, reverse_jacobian])
@pytest.mark.parametrize("gradient", EXACT, ids=repr)
def test_exact_methods(gradient, transform, given):
    found = transform(lambda W, x: steady(W, x, gradient=gradient), *given)
    torch.testing.assert_close(found, transform(unrolled, *given), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("transform", [per_sample, forward_jacobian])
@pytest.mark.parametrize(
    "forward",
    [
        sg.Anderson(200, 1e-12),
        sg.Broyden(200, 1e-12),
        sg.Newton(rtol=1e-12),
        sg.Picard(500, 1e-13, damping=0.3),
        sg.Reversible(500, 1e-13, damping=0.8),
    ],
    ids=repr,
)
def test_forward_solvers(forward, transform, given):
    found = transform(lambda W, x: steady(W, x, forward=forward), *given)
    torch.testing.assert_close(found, transform(unrolled, *given), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("forward", [sg.Picard(20, 0.0), sg.Picard(300, 1e-6)], ids=repr)
@pytest.mark.parametrize("gradient", TRUNCATED, ids=repr)
def test_truncated_methods_give_each_entry_what_it_gets_alone(gradient, forward, given):
    """Not the exact gradient, but the method's own; to a tolerance a problem may end a few steps later than alone."""
    W, X = given
    rtol = 1e-9 if forward.counts else 10 * forward.rtol

    def value(W, x):
        return steady(W, x, gradient=gradient, forward=forward)

    def alone(x):
        leaves = W.clone().requires_grad_(), x.clone().requires_grad_()
        return torch.autograd.grad(value(*leaves).square().sum(), leaves)

    expected = tuple(torch.stack(parts) for parts in zip(*(alone(x) for x in X), strict=True))
    # Those who end later are nearer to the steady state, by what the stop allows of the whole.
    torch.testing.assert_close(per_sample(value, W, X), expected, rtol=rtol, atol=rtol / 100 if forward.counts else rtol)


@pytest.mark.parametrize("gradient", [g for g in TRUNCATED if g != sg.Implicit(sg.NormalCG(steps=2))], ids=repr)
def test_truncated_methods_in_forward_mode_are_their_transpose(gradient, given):
    """But for Krylov methods, whose result after a few steps is not linear in the right-hand side."""
    W, X = given

    def value(x):
        return steady(W, x, gradient=gradient, forward=sg.Picard(20, 0.0))

    torch.testing.assert_close(jacfwd(value)(X[0]), jacrev(value)(X[0]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("gradient", [sg.BPTT(), sg.TBPTT(steps=30)], ids=repr)
def test_unrolled_gradients_reach_the_start(gradient):
    def value(h0):
        return sg.steady_state(lambda h: 0.5 * h + 1, h0, forward=sg.Picard(3, 0.0), gradient=gradient).value

    h0 = torch.randn(2, **F64)
    for jacobian in (jacrev(value)(h0), jacfwd(value)(h0), vmap(jacrev(value))(h0.unsqueeze(0))[0]):
        torch.testing.assert_close(jacobian, 0.125 * torch.eye(2, **F64))


def test_implicit_gradients_do_not_reach_the_start():
    found = jacrev(lambda h0: sg.steady_state(lambda h: 0.5 * h + 1, h0).value)(torch.randn(2, **F64))
    assert not found.any()


def lowest(x):
    """The minimum of cosh(h − x) + h⁴/10, number by number, by Newton's method."""
    h = torch.zeros_like(x)
    for _ in range(40):
        h = h - (torch.sinh(h - x) + 0.4 * h**3) / (torch.cosh(h - x) + 1.2 * h**2)
    return h


def energy(h, x):
    return (torch.cosh(h - x) + 0.1 * h**4).sum()


MINIMA = {
    "closure": lambda x: sg.minimum(lambda h: energy(h, x), torch.zeros(2, **F64)).value,
    "args": lambda x: sg.minimum(energy, torch.zeros(2, **F64), x).value,
    "root": lambda x: sg.root(lambda h: torch.sinh(h - x) + 0.4 * h**3, torch.zeros(2, **F64)).value,
}


@pytest.mark.parametrize("name", MINIMA)
@pytest.mark.parametrize(
    "transform",
    [jacrev, jacfwd, lambda f: hessian(lambda x: f(x).square().sum()), vmap, lambda f: vmap(jacfwd(f))],
    ids=["jacrev", "jacfwd", "hessian", "vmap", "vmap of jacfwd"],
)
def test_roots_and_minima(name, transform, request):
    x = torch.tensor([[2.0, 3.0], [-1.0, 0.5], [0.3, -4.0]], **F64)
    x = x if "vmap" in request.node.callspec.id else x[0]
    torch.testing.assert_close(transform(MINIMA[name])(x), transform(lowest)(x), rtol=1e-6, atol=1e-7)


def test_minimum_in_forward_mode():
    x = torch.tensor([2.0, 3.0], **F64)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(MINIMA["closure"](forward_ad.make_dual(x, torch.ones_like(x)))).tangent
    torch.testing.assert_close(tangent, jvp(lowest, (x,), (torch.ones_like(x),))[1], rtol=1e-7, atol=1e-9)


class Cell(nn.Module):
    """tanh(A x + B h)."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 5), nn.Linear(5, 5)

    def forward(self, x, h):
        return torch.tanh(self.a(x) if h is None else self.a(x) + 0.5 * self.b(h))


def layers(count):
    torch.manual_seed(0)
    return [sg.Equilibrium(Cell().double(), forward=TIGHT) for _ in range(count)]


def test_an_ensemble_of_layers():
    members, x = layers(3), torch.randn(6, 3, **F64)
    parameters, _ = stack_module_state(members)
    base = layers(1)[0]
    found = vmap(lambda p, x: functional_call(base, p, (x,)), (0, None))(parameters, x)
    torch.testing.assert_close(found, torch.stack([member(x) for member in members]), rtol=1e-10, atol=1e-11)
    assert base.solution.value.shape == (3, 6, 5)
    assert base.solution.converged.tolist() == [True] * 3
    found.square().sum().backward()  # below the vmap, into the stacked parameters
    members[1](x).square().sum().backward()
    torch.testing.assert_close(parameters["cell.b.weight"].grad[1], members[1].cell.b.weight.grad, rtol=1e-8, atol=1e-9)


def test_gradients_of_each_sample_through_a_layer():
    (layer,) = layers(1)
    x = torch.randn(4, 3, **F64)

    def loss(p, x):
        return functional_call(layer, p, (x,)).square().sum()

    found = vmap(grad(loss), (None, 0))(dict(layer.named_parameters()), x)
    assert layer.solution.adjoint.converged.tolist() == [True] * 4
    for i in range(4):
        layer.zero_grad()
        layer(x[i]).square().sum().backward()
        expected = {name: p.grad for name, p in layer.named_parameters()}
        torch.testing.assert_close({name: g[i] for name, g in found.items()}, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("warm_start", [True, "always"])
def test_a_warm_layer(warm_start):
    """A layer that was warm outside starts cold inside where the shapes differ, and the other way round."""
    layer = sg.Equilibrium(Cell().double(), forward=TIGHT, warm_start=warm_start)
    x = torch.randn(4, 3, **F64)
    expected = layer(x)
    torch.testing.assert_close(vmap(layer)(x), expected.detach(), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(vmap(layer)(x), expected.detach(), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(layer(x), expected, rtol=1e-9, atol=1e-10)
