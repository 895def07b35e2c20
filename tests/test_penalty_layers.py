"""Gradients of penalties through the layers that people use, against finite differences in float64.

torch's third derivatives of layer_norm, batch_norm and instance_norm are wrong (gradgradcheck, which takes two, passes), so a
penalty whose gradient takes three is wrong by tens of per cent through them.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

from penalties import CALLS, seeded_normal
from steadygrad import penalty

F64 = torch.float64


def dense_layer(normalise):
    W, gain, shift = 0.6 * seeded_normal(6, 6), 1 + 0.3 * seeded_normal(6, seed=1), 0.3 * seeded_normal(6, seed=2)
    parameters = [nn.Parameter(tensor) for tensor in (W, gain, shift)]
    return (lambda h: torch.tanh(normalise(h @ parameters[0].T, *parameters[1:]))), seeded_normal(3, 6, seed=3), parameters


def image_layer(normalise):
    W, gain, shift = 0.4 * seeded_normal(4, 4, 3, 3), 1 + 0.3 * seeded_normal(4, seed=1), 0.3 * seeded_normal(4, seed=2)
    parameters = [nn.Parameter(tensor) for tensor in (W, gain, shift)]

    def update(h):
        return torch.tanh(normalise(functional.conv2d(h, parameters[0], padding=1), *parameters[1:]))

    return update, seeded_normal(1, 4, 2, 2, seed=3), parameters


def gru():
    torch.manual_seed(0)
    cell, x = nn.GRUCell(3, 5).double(), seeded_normal(2, 3)
    return (lambda h: cell(x, h)), seeded_normal(2, 5, seed=1), list(cell.parameters())


def attention():
    """Without the weights torch takes a fused kernel, which has no second derivative."""
    torch.manual_seed(0)
    attend = nn.MultiheadAttention(4, 2, batch_first=True).double()
    return (lambda h: attend(h, h, h, need_weights=False)[0]), seeded_normal(1, 3, 4), list(attend.parameters())


LAYERS = {
    "linear": lambda: dense_layer(lambda y, g, b: g * y + b),
    "layer_norm": lambda: dense_layer(lambda y, g, b: functional.layer_norm(y, (6,), g, b)),
    "batch_norm in training": lambda: dense_layer(lambda y, g, b: functional.batch_norm(y, None, None, g, b, training=True)),
    "softmax": lambda: dense_layer(lambda y, g, b: g * torch.softmax(y, dim=-1) + b),
    "conv": lambda: image_layer(lambda y, g, b: y * g[:, None, None] + b[:, None, None]),
    "instance_norm": lambda: image_layer(lambda y, g, b: functional.instance_norm(y, weight=g, bias=b)),
    "group_norm": lambda: image_layer(lambda y, g, b: functional.group_norm(y, 2, g, b)),
    "GRUCell": gru,
    "attention": attention,
}
# With as many steps as the value takes to converge: spectral and the fixed Ritz vector have the gradient of the limit.
SETTLED = {
    **CALLS,
    "spectral": lambda *a: penalty.spectral(*a, steps=120),
    "lanczos to the end": lambda *a: penalty.lanczos(*a, steps=18),
    "lanczos fixed": lambda *a: penalty.lanczos(*a, steps=18, through=False),
}


def along(call, update, tensors, bumps, step=1e-5):
    """The derivative of a penalty along a change of all tensors, by a central difference of fourth order."""

    def moved(by):
        with torch.no_grad():
            for tensor, bump in zip(tensors, bumps, strict=True):
                tensor.add_(by * bump)
            value = call(update, tensors[-1]).item()
            for tensor, bump in zip(tensors, bumps, strict=True):
                tensor.sub_(by * bump)
        return value

    return (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("call", SETTLED.values(), ids=SETTLED)
def test_gradient_by_parameters_and_state(call, layer):
    update, h, parameters = layer()
    tensors = [*parameters, h.requires_grad_()]
    bumps = [torch.randn_like(tensor) for tensor in tensors]
    grads = torch.autograd.grad(call(update, h), tensors, materialize_grads=True)
    ours = sum((grad * bump).sum().item() for grad, bump in zip(grads, bumps, strict=True))
    size = sum(grad.square().sum().item() for grad in grads) ** 0.5
    assert size > 0
    assert ours == pytest.approx(along(call, update, tensors, bumps), rel=1e-4, abs=1e-4 * size)


@pytest.mark.parametrize("size", [8, 200])
def test_frobenius_is_the_same_for_all_sizes(size):
    """The mean square of a singular value: a² of aI, about r² of a random matrix of radius r; the sum on request."""
    J, h = seeded_normal(size, size) * 0.7 / size**0.5, torch.zeros(size, dtype=F64)
    assert penalty.frobenius(lambda h: 0.5 * h, h).item() == pytest.approx(0.25)
    value = penalty.frobenius(J.mv, h, samples=None)
    assert value.item() == pytest.approx(0.49, rel=0.4)
    assert value.item() == pytest.approx(torch.linalg.svdvals(J).square().mean().item())
    assert penalty.frobenius(J.mv, h, samples=None, over="sum").item() == pytest.approx(J.square().sum().item())
    with pytest.raises(ValueError, match='"mean"'):
        penalty.frobenius(J.mv, h, over="max")
