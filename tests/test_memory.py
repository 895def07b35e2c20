"""Memory: flat in the forward steps and in K, and nothing leaks."""

import gc
import weakref

import pytest
import torch
from benchmarks.frame import in_fresh_process

import steadygrad as sg
from steadygrad.iteration.error import PUT_OFF
from steadygrad.iteration.norms import leaf_norms
from steadygrad.paper.experiments.resident import held_mb
from steadygrad.peak_memory import peak_memory
from steadygrad.state import Layout
from steadygrad.update import Update

IMPLICIT = [
    lambda K: sg.Implicit(sg.Neumann(steps=K)),
    lambda K: sg.Implicit(sg.Picard(max_steps=K, rtol=0)),
    lambda K: sg.Implicit(sg.NormalCG(steps=K)),
    lambda K: sg.Implicit(sg.Neumann(rtol=10.0 ** (-3 - K / 150), max_steps=10_000)),
    lambda K: sg.Implicit(sg.LSQR(steps=K)),
    lambda K: sg.Implicit(sg.BiCGSTAB(steps=K)),
    lambda K: sg.Implicit(sg.GMRES(steps=K, restart=5)),
    lambda K: "auto",
    lambda K: "one-step",
]
NAMES = ["neumann", "rbp", "cg", "adaptive", "lsqr", "bicgstab", "gmres", "auto", "one-step"]


def peak(gradient, T):
    torch.manual_seed(0)
    W = (0.5 * torch.linalg.qr(torch.randn(128, 128))[0]).requires_grad_()
    x = torch.randn(16, 128)

    def step():
        solution = sg.steady_state(
            lambda h: torch.tanh(h @ W.T + x), torch.zeros(16, 128), forward=sg.Picard(max_steps=T, rtol=0), gradient=gradient
        )
        solution.value.square().sum().backward()

    for _ in range(PUT_OFF + 1):  # from here on W's gradient exists, and no earlier test's estimate is left to be worked out
        step()
    return peak_memory(step)


@pytest.mark.parametrize("make", IMPLICIT, ids=NAMES)
def test_flat_in_the_forward_steps(make):
    assert peak(make(10), 400) <= peak(make(10), 20)


@pytest.mark.parametrize(("name", "make"), list(zip(NAMES, IMPLICIT, strict=True)), ids=NAMES)
def test_flat_in_k(name, make):
    """How many powers GMRES makes orthogonal together depends on how dependent they are: once converged, on rounding."""
    least = min(peak(make(10), 20), peak(make(20), 20))
    assert peak(make(300), 20) <= (1.5 if name == "gmres" else 1.05) * least


def test_the_measure_sees_what_bptt_keeps():
    assert peak("bptt", 400) > 8 * peak("bptt", 20)
    assert peak("bptt", 400) > 5 * peak("auto", 400)


def resident():
    """Megabytes held now. The largest ever would hide a leak behind what an earlier test of this process had needed."""
    held = held_mb()
    if held is None:
        pytest.skip("resident memory is read from Linux's /proc")
    return held


def test_nothing_leaks_over_a_thousand_training_steps():
    """One state of 256 kB kept a step would be 256 MB."""
    W = (0.3 * torch.eye(256)).requires_grad_()
    x = torch.randn(256, 256)
    optimiser = torch.optim.SGD([W], lr=1e-6)
    layer = sg.Equilibrium(lambda x, h: torch.tanh(h @ W.T + x), initial=torch.zeros_like, forward=sg.Picard(rtol=1e-2))

    def train(steps):
        for _ in range(steps):
            optimiser.zero_grad()
            layer(x).square().mean().backward()
            optimiser.step()

    train(20)
    gc.collect()
    gc.disable()  # cycles would count as leaks
    before = resident()
    try:
        train(1000)
    finally:
        gc.enable()
    assert resident() - before < 64


def test_backward_frees_what_f_saved():
    W = (0.3 * torch.eye(64)).requires_grad_()
    seen = []

    class Spy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            big = torch.zeros(1000)
            seen.append(torch.multiprocessing.reductions.StorageWeakRef(big.untyped_storage()))
            ctx.save_for_backward(big)
            return h.clone()

        @staticmethod
        def backward(ctx, g):
            return g + 0 * ctx.saved_tensors[0].sum()

    solution = sg.steady_state(lambda h: torch.tanh(Spy.apply(h) @ W + 1), torch.zeros(2, 64))
    assert not seen[-1].expired()
    solution.value.sum().backward()
    assert seen[-1].expired()


def test_certificates_that_are_kept_hold_no_vectors():
    """Three hundred for states of 32 kB would be 86 MB, with all that their estimates are worked out from."""
    W, x = (0.3 * torch.eye(128)).requires_grad_(), torch.randn(64, 128)
    kept = []

    def train(steps):
        for _ in range(steps):
            solution = sg.steady_state(lambda h: torch.tanh(h @ W.T + x), torch.zeros(64, 128), gradient="neumann-rbp")
            solution.value.square().mean().backward()
            kept.append(solution.adjoint)

    train(20)
    before = resident()
    train(300)
    assert resident() - before < 32
    assert len({adjoint.error_estimate for adjoint in kept}) == 1


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_norms_take_no_copy_of_a_state_however_small_or_large_its_numbers(size):
    state = torch.full((1, 2**16), size)
    held = peak_memory(lambda: leaf_norms([state], [2**16]))
    assert held < 0.2 * state.numel() * state.element_size()
    assert leaf_norms([state], [2**16])[0][0, 0] == pytest.approx(2**8 * size, rel=1e-6)


@pytest.mark.parametrize(("damping", "images"), [(0.0, 1), (0.5, 0)])
def test_steps_hold_no_image_but_the_state(damping, images):
    """Damped, the state is no image of F's either."""
    made, alive = [], []

    def settle(h):
        alive.append(sum(image() is not None for image in made))
        image = 0.5 * h + 1
        made.append(weakref.ref(image))
        return image

    start = torch.zeros(8)
    update = Update(settle, (), Layout.of(start, 0))
    with torch.no_grad():
        update.advance(start.view(1, -1), 20, damping)
    assert max(alive[4:-2]) == images


def states_of_the_default_call(radius):
    torch.manual_seed(0)
    rows, size = 2048, 64
    W = torch.randn(size, size)
    W = (radius * W / torch.linalg.eigvals(W).abs().max()).requires_grad_()
    x = 0.1 * torch.randn(rows, size)

    def step():
        forward = sg.Picard(max_steps=2000, rtol=1e-5)
        solution = sg.steady_state(lambda h: torch.tanh(h @ W.T + x), torch.zeros(rows, size), forward=forward)
        torch.autograd.grad(solution.value.square().sum(), W)

    step()
    return peak_memory(step) / (4 * rows * size)


@pytest.mark.parametrize("radius", [0.8, 0.95])
def test_auto_takes_twelve_states_where_the_series_suffices(radius):
    """In a process of its own: after torch.compile has refused a function, torch keeps Python's calls from dropping arguments early."""
    assert in_fresh_process(states_of_the_default_call, radius) < 12.1
