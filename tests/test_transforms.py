"""Every transform of torch around a steady state, against the same transform of the unrolled iteration, in float64."""

import pytest
import torch
from torch.autograd import forward_ad, functional
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import steadygrad as sg

# torch's own forward mode scripts its decompositions when it is first used.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")

N = 4
TIGHT = sg.Picard(max_steps=500, rtol=1e-13)


@pytest.fixture
def given():
    """Weights with ρ < 1, one input, three inputs."""
    generator = torch.Generator().manual_seed(0)
    W = 0.25 * torch.randn(N, N, generator=generator, dtype=torch.float64)
    x = torch.randn(N, generator=generator, dtype=torch.float64)
    X = torch.randn(3, N, generator=generator, dtype=torch.float64)
    return W, x, X


def unrolled(W, x):
    h = torch.zeros(N, dtype=torch.float64)
    for _ in range(150):
        h = torch.tanh(W @ h + x)
    return h


def closed_over(W, x, **options):
    start = torch.zeros(N, dtype=torch.float64)
    return sg.steady_state(lambda h: torch.tanh(W @ h + x), start, forward=TIGHT, **options).value


def as_args(W, x, **options):
    start = torch.zeros(N, dtype=torch.float64)
    return sg.steady_state(lambda h, W, x: torch.tanh(W @ h + x), start, W, x, forward=TIGHT, **options).value


def loss(f):
    return lambda W, x: f(W, x).square().sum() + f(W, x).pow(3).sum()


def each(f):
    """f for several inputs."""
    return vmap(f, (None, 0))


TRANSFORMS = {
    "grad": lambda f, W, x, X: grad(loss(f), argnums=(0, 1))(W, x),
    "vjp": lambda f, W, x, X: vjp(f, W, x)[1](x),
    "jvp": lambda f, W, x, X: jvp(f, (W, x), (W + 1, 2 * x)),
    "jacrev": lambda f, W, x, X: jacrev(f, argnums=(0, 1))(W, x),
    "jacfwd": lambda f, W, x, X: jacfwd(f, argnums=(0, 1))(W, x),
    "vmap": lambda f, W, x, X: each(f)(W, X),
    "vmap of vmap": lambda f, W, x, X: vmap(each(f), (0, None))(torch.stack([W, W / 2]), X),
    "vmap over the last dimension": lambda f, W, x, X: vmap(f, (None, 1), out_dims=1)(W, X.T),
    "vmap in chunks": lambda f, W, x, X: vmap(f, (None, 0), chunk_size=2)(W, X),
    "vmap of grad": lambda f, W, x, X: vmap(grad(loss(f), argnums=(0, 1)), (None, 0))(W, X),
    "vmap of jvp": lambda f, W, x, X: vmap(lambda t: jvp(f, (W, x), (W, t))[1])(X),
    "vmap of jacfwd": lambda f, W, x, X: vmap(jacfwd(f), (None, 0))(W, X),
    "grad of vmap": lambda f, W, x, X: grad(lambda W, X: each(f)(W, X).square().sum(), argnums=(0, 1))(W, X),
    "jacrev of vmap": lambda f, W, x, X: jacrev(lambda W: each(f)(W, X))(W),
    "jacfwd of vmap": lambda f, W, x, X: jacfwd(lambda W: each(f)(W, X))(W),
    "vmap of jacfwd of vmap": lambda f, W, x, X: vmap(jacfwd(lambda W: each(f)(W, X)))(torch.stack([W, W / 2])),
    "hessian": lambda f, W, x, X: hessian(loss(f), argnums=(0, 1))(W, x),
    "jacrev of jacrev": lambda f, W, x, X: jacrev(jacrev(loss(f), argnums=1), argnums=0)(W, x),
    "jacfwd of jacfwd": lambda f, W, x, X: jacfwd(jacfwd(f, argnums=1), argnums=1)(W, x),
    "jacrev of jacfwd": lambda f, W, x, X: jacrev(jacfwd(f, argnums=1), argnums=1)(W, x),
    "vmap of hessian": lambda f, W, x, X: vmap(hessian(loss(f), argnums=1), (None, 0))(W, X),
    "hessian of vmap": lambda f, W, x, X: hessian(lambda X: each(f)(W, X).pow(3).sum())(X),
    "third derivative": lambda f, W, x, X: grad(lambda x: hessian(loss(f), argnums=1)(W, x).sum())(x),
    "jvp of grad": lambda f, W, x, X: jvp(lambda W: grad(loss(f))(W, x), (W,), (W + 1,)),
    "grad of jvp": lambda f, W, x, X: grad(lambda W: jvp(lambda x: f(W, x), (x,), (x + 1,))[1].square().sum())(W),
}


@pytest.mark.parametrize("solve", [closed_over, as_args])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_torch_func(name, solve, given):
    torch.testing.assert_close(TRANSFORMS[name](solve, *given), TRANSFORMS[name](unrolled, *given), rtol=1e-8, atol=1e-9)


def forward_mode(f, W, x, X):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(f(forward_ad.make_dual(W, W + 1), forward_ad.make_dual(x, 2 * x))).tangent


def forward_over_reverse(f, W, x, X):
    W, x = W.clone().requires_grad_(), x.clone()
    with forward_ad.dual_level():
        value = loss(f)(W, forward_ad.make_dual(x, x + 1))
        return forward_ad.unpack_dual(torch.autograd.grad(value, W)[0]).tangent


def backward_through_vmap(f, W, x, X):
    W, X = W.clone().requires_grad_(), X.clone().requires_grad_()
    return torch.autograd.grad(each(f)(W, X).square().sum(), (W, X))


def batched_cotangents(f, W, x, X):
    W = W.clone().requires_grad_()
    return torch.autograd.grad(f(W, x), W, torch.eye(N, dtype=W.dtype), is_grads_batched=True)


def vmap_of_autograd_grad(f, W, x, X):
    W = W.clone().requires_grad_()
    value = f(W, x)
    return vmap(lambda v: torch.autograd.grad(value, W, v, retain_graph=True)[0])(torch.eye(N, dtype=W.dtype))


AUTOGRAD = {
    "forward_ad": forward_mode,
    "forward over reverse": forward_over_reverse,
    "backward through vmap": backward_through_vmap,
    "is_grads_batched": batched_cotangents,
    "vmap of autograd.grad": vmap_of_autograd_grad,
    "jacobian": lambda f, W, x, X: functional.jacobian(f, (W, x)),
    "jacobian, vectorised": lambda f, W, x, X: functional.jacobian(f, (W, x), vectorize=True),
}


@pytest.mark.parametrize("solve", [closed_over, as_args])
@pytest.mark.parametrize("name", AUTOGRAD)
def test_transforms_of_torch_autograd(name, solve, given):
    torch.testing.assert_close(AUTOGRAD[name](solve, *given), AUTOGRAD[name](unrolled, *given), rtol=1e-8, atol=1e-9)


def test_vectorised_hessian(given):
    W, x, _ = given

    def found(x):
        return loss(lambda W, x: closed_over(W, x, derivatives=2))(W, x)

    expected = hessian(loss(unrolled), argnums=1)(W, x)
    torch.testing.assert_close(functional.hessian(found, x, vectorize=True), expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["grad", "vmap of grad", "jvp", "hessian"])
def test_outer_no_grad_changes_nothing(name, given):
    """torch.func takes its derivatives under no_grad too."""
    with torch.no_grad():
        found = TRANSFORMS[name](closed_over, *given)
    torch.testing.assert_close(found, TRANSFORMS[name](unrolled, *given), rtol=1e-8, atol=1e-9)


def test_orders_beyond_those_of_the_transforms_are_refused(given):
    W, x, _ = given
    with pytest.raises(sg.SteadyStateError, match="Declare derivatives=2"):
        grad(lambda x: torch.autograd.grad(loss(closed_over)(W, x), x, create_graph=True)[0].sum())(x)
    leaf = x.clone().requires_grad_()
    first = grad(lambda x: loss(closed_over)(W, x))(leaf)
    (second,) = torch.autograd.grad(first.sum(), leaf, create_graph=True)
    torch.testing.assert_close(second, hessian(loss(unrolled), argnums=1)(W, x).sum(0), rtol=1e-8, atol=1e-9)
    with pytest.raises(sg.SteadyStateError, match="derivative 3"):
        torch.autograd.grad(second.sum(), leaf)


def test_orders_are_counted_through_batched_cotangents(given):
    W, x, _ = given

    def second(order):
        leaf = x.clone().requires_grad_()
        value = closed_over(W, leaf, derivatives=order).pow(3)
        (first,) = torch.autograd.grad(value, leaf, torch.eye(N, dtype=x.dtype), is_grads_batched=True, create_graph=True)
        return torch.autograd.grad(first.sum(), leaf, create_graph=True)[0], leaf

    expected = hessian(lambda x: unrolled(W, x).pow(3).sum())(x).sum(0)
    found, leaf = second(2)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)
    with pytest.raises(sg.SteadyStateError, match="derivative 3"):
        torch.autograd.grad(found.sum(), leaf)
    with pytest.raises(sg.SteadyStateError, match="second derivative"):
        second(1)


def test_solves_inside_the_f_of_another():
    def nested(solve):
        def inner(a, u):
            return solve(lambda v: 0.3 * torch.sin(v) + a * u, torch.zeros(N, dtype=torch.float64))

        return lambda a, x: solve(lambda h: 0.4 * torch.tanh(inner(a, h)) + x, torch.zeros(N, dtype=torch.float64))

    def steps(update, h):
        for _ in range(40):
            h = update(h)
        return h

    found = nested(lambda F, h: sg.steady_state(F, h, forward=TIGHT, gradient="gmres", derivatives=2).value)
    expected = nested(steps)
    a, x = torch.tensor(0.7, dtype=torch.float64), torch.linspace(-1, 1, N, dtype=torch.float64)
    for transform in (jacrev, jacfwd, lambda f: hessian(lambda a, x: f(a, x).square().sum())):
        torch.testing.assert_close(transform(found)(a, x), transform(expected)(a, x), rtol=1e-8, atol=1e-9)
    many = torch.stack([x, 2 * x])
    torch.testing.assert_close(each(found)(a, many), each(expected)(a, many), rtol=1e-8, atol=1e-9)


def test_tangents_that_are_the_same_for_all_entries():
    """The right-hand side has no vmapped dimension then, while J and so the tangent have."""

    def solved(w, x):
        return sg.steady_state(lambda h: 0.5 * torch.tanh(h * x) + w, torch.zeros(N, dtype=torch.float64), forward=TIGHT).value

    def plain(w, x):
        h = torch.zeros(N, dtype=torch.float64)
        for _ in range(100):
            h = 0.5 * torch.tanh(h * x) + w
        return h

    w, X = torch.linspace(-1, 1, N, dtype=torch.float64), torch.linspace(0, 2, 3 * N, dtype=torch.float64).view(3, N)
    for name in ("vmap of jvp", "jacfwd of vmap", "vmap of jacfwd", "vmap of grad"):
        torch.testing.assert_close(
            TRANSFORMS[name](solved, w, X[0], X), TRANSFORMS[name](plain, w, X[0], X), rtol=1e-8, atol=1e-9
        )
    found, expected = (vmap(lambda x, f=f: jvp(lambda w: f(w, x), (w,), (w + 1,))[1])(X) for f in (solved, plain))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


def test_nested_states(given):
    W, x, X = given

    def steady(W, x):
        start = {"a": torch.zeros(N, dtype=W.dtype), "b": (torch.zeros(2, N, dtype=W.dtype),)}

        def update(h):
            return {"a": torch.tanh(W @ h["b"][0].sum(0) + x), "b": (0.3 * torch.stack([h["a"], x * h["a"]]).sin(),)}

        value = sg.steady_state(update, start, forward=TIGHT).value
        return torch.cat([value["a"], value["b"][0].flatten()])

    def plain(W, x):
        a, b = torch.zeros(N, dtype=W.dtype), torch.zeros(2, N, dtype=W.dtype)
        for _ in range(200):
            a, b = torch.tanh(W @ b.sum(0) + x), 0.3 * torch.stack([a, x * a]).sin()
        return torch.cat([a, b.flatten()])

    for name in ("jacfwd of vmap", "vmap of grad", "jacrev", "hessian"):
        torch.testing.assert_close(TRANSFORMS[name](steady, W, x, X), TRANSFORMS[name](plain, W, x, X), rtol=1e-8, atol=1e-9)
