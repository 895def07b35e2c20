"""No tensor is made on the wrong device or in the wrong dtype, and a fixed count does not wait for numbers in every step.

No GPU is here. Instead the default device is `meta` and the default dtype float16 while everything that the user brings is on the
CPU in float64: a tensor that is made without naming its device has no numbers, and cannot be mixed with others; one that is made
without its dtype rounds. What runs must also give the bits that it gives without.
"""

import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode

import steadygrad as sg
from steadygrad.api import SHORTHANDS

CPU = {"dtype": torch.float64, "device": "cpu"}
FORWARD = [sg.Picard(200, 1e-8), sg.Picard(30, 0.0), sg.Anderson(), sg.Broyden(), sg.Newton()]


@contextlib.contextmanager
def elsewhere():
    """A context in which what names no device and no dtype lands where it cannot be used."""
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float16)
    try:
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


def weights():
    """A symmetric matrix that contracts, and inputs: every solver can use it."""
    generator = torch.Generator().manual_seed(0)
    W = 0.12 * torch.randn(5, 5, generator=generator, **CPU)
    return W + W.T, torch.randn(3, 5, generator=generator, **CPU)


def by_steady_state(forward, gradient, nested=False, **options):
    torch.manual_seed(0)
    W, x = weights()
    W.requires_grad_()
    start = torch.zeros(3, 5, **CPU)
    if nested:
        found = sg.steady_state(
            lambda h, x: (torch.tanh(h[1] @ W + x), 100 * h[0].sin()),
            (start, start),
            x,
            forward=forward,
            gradient=gradient,
            **options,
        )
    else:
        found = sg.steady_state(lambda h, x: torch.tanh(h @ W + x), start, x, forward=forward, gradient=gradient, **options)
    value = found.value[0] if nested else found.value
    (grad,) = torch.autograd.grad(value.square().sum(), W)
    seen = [torch.as_tensor(found.converged, device="cpu")]
    if found.adjoint is not None:
        seen += [torch.tensor(found.adjoint.error_estimate, **CPU)]
    return [value.detach(), grad, *seen]


def same_elsewhere(call):
    """What a call gives, the same bits on a default device that has none."""
    here = call()
    with elsewhere():
        there = call()
    for a, b in zip(here, there, strict=True):
        assert b.device.type == "cpu"
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.mark.parametrize("batch_dims", [0, 1])
@pytest.mark.parametrize("forward", FORWARD, ids=repr)
def test_forward_solvers(forward, batch_dims):
    same_elsewhere(lambda: by_steady_state(forward, "gmres", batch_dims=batch_dims))


@pytest.mark.parametrize("batch_dims", [0, 1])
@pytest.mark.parametrize("gradient", SHORTHANDS)
@pytest.mark.filterwarnings("ignore::steadygrad.SteadyStateWarning")  # J is not symmetric
def test_gradients(gradient, batch_dims):
    same_elsewhere(lambda: by_steady_state(sg.Picard(300, 1e-9), gradient, batch_dims=batch_dims))


@pytest.mark.parametrize("gradient", ["auto", "cg-rbp", "neumann-rbp", "bptt"])
@pytest.mark.filterwarnings("ignore::steadygrad.SteadyStateWarning")
def test_leaves_of_different_size(gradient):
    same_elsewhere(lambda: by_steady_state(sg.Picard(300, 1e-9), gradient, nested=True))


@pytest.mark.parametrize(
    "gradient",
    [
        sg.Implicit(sg.Picard(200, 1e-9), initial="uniform", seed=1),
        sg.BPTT(checkpoints=4),
        sg.BPTT(memory="sqrt"),
        sg.ARTBP("poisson", mean=3.0, seed=1),
    ],
    ids=repr,
)
def test_other_methods(gradient):
    same_elsewhere(lambda: by_steady_state(sg.Picard(40, 0.0), gradient))


def by_transforms():
    W, X = weights()

    def loss(W, x):
        return sg.steady_state(lambda h: torch.tanh(W @ h + x), torch.zeros(5, **CPU)).value.square().sum()

    per_sample = torch.vmap(torch.func.grad(loss), (None, 0))(W, X)
    return [per_sample, torch.func.jacfwd(loss)(W, X[0]), torch.func.hessian(loss, argnums=1)(W, X[0])]


def by_equations():
    _, x = weights()
    x.requires_grad_()
    start = torch.zeros(3, 5, **CPU)
    root = sg.root(lambda h: h.exp() - x.exp(), start).value
    one = sg.minimum(lambda h: (h - x).square().sum() + h.pow(4).sum(), start).value
    many = sg.minimum(lambda h, x: (h - x).square().sum(1) + h.pow(4).sum(1), start, x, batch_dims=1).value
    return [*torch.autograd.grad((root + one + many).sum(), x), root.detach(), one.detach(), many.detach()]


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("call", [by_transforms, by_equations])
def test_transforms_roots_and_minima(call):
    same_elsewhere(call)


def test_a_tensor_made_without_its_device_would_be_found():
    """The test itself can fail."""
    with elsewhere(), pytest.raises((RuntimeError, ValueError, NotImplementedError)):
        sg.steady_state(lambda h: 0.5 * h + torch.ones(3), torch.zeros(3, **CPU))


class Reads(TorchFunctionMode):
    """Counts where numbers are read from tensors, for which a GPU would have to be waited for."""

    NAMES = ("item", "cpu", "tolist", "numpy", "__bool__", "__float__", "__int__", "equal", "nonzero")

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += getattr(func, "__name__", "") in self.NAMES
        return func(*args, **(kwargs or {}))


def reads(steps, products, gradient=None, **options):
    W, x = weights()
    W.requires_grad_()
    method = gradient or sg.Implicit(sg.Neumann(steps=products))
    with Reads() as mode:
        found = sg.steady_state(
            lambda h: 0.97 * h + 0.01 * torch.tanh(h @ W + x),
            torch.ones(3, 5, **CPU),
            forward=sg.Picard(steps, 0.0),
            gradient=method,
            **options,
        )
        found.value.square().sum().backward()
    return mode.count


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_a_fixed_count_reads_numbers_at_every_tenth_step_only(batch_dims):
    """At most five numbers a look, and a look every tenth step; between them the device runs ahead."""
    assert reads(220, 5, batch_dims=batch_dims) - reads(120, 5, batch_dims=batch_dims) <= 5 * 10
    assert reads(220, 5, "bptt", batch_dims=batch_dims) - reads(120, 5, "bptt", batch_dims=batch_dims) <= 5 * 10


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_a_fixed_series_reads_numbers_at_every_tenth_product_only(batch_dims):
    assert reads(20, 220, batch_dims=batch_dims) - reads(20, 120, batch_dims=batch_dims) <= 5 * 10
