"""Solves in several threads at once."""

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import relative
from steadygrad.update import randomness
from steadygrad.update.attention import differentiable_attention

THREADS = 4


def in_threads(task, count):
    """The results of task(0), …, task(count − 1), run by four threads that start together."""
    barrier = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS, initializer=barrier.wait) as pool:
        return list(pool.map(task, range(count), timeout=120))


@pytest.fixture(autouse=True)
def restless():
    """Threads that change places as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


LONG = sg.Picard(max_steps=500, rtol=1e-12)


def input_of(seed):
    return torch.linspace(-1, 1, 24, dtype=torch.float64).view(3, 8) + seed / 100


def solve(seed, net, p):
    x = input_of(seed)

    def dropped(h):
        return torch.dropout(torch.tanh(0.3 * net(h) + x), p, True)

    solution = sg.steady_state(dropped, torch.zeros_like(x), on_failure="raise", forward=LONG)
    (grad,) = torch.autograd.grad(solution.value.sum(), net.weight)
    return solution, grad


def test_dropout_in_every_thread():
    """Each solve has one mask, from the first step to the last product, and a mask of its own."""
    net = nn.Linear(8, 8).double()
    solved = in_threads(lambda seed: solve(seed, net, 0.5), 60)
    masks = [2.0 * (solution.value != 0) for solution, _ in solved]
    for seed, ((solution, grad), mask) in enumerate(zip(solved, masks, strict=True)):
        x = input_of(seed)
        alone = sg.steady_state(lambda h: mask * torch.tanh(0.3 * net(h) + x), torch.zeros_like(x), forward=LONG)  # noqa: B023
        assert relative(solution.value, alone.value) < 1e-9
        assert relative(grad, torch.autograd.grad(alone.value.sum(), net.weight)[0]) < 1e-8
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == len(masks)


def test_solves_that_draw_nothing_are_those_of_one_thread():
    """Beside solves that draw, which set the random state all the time."""
    net = nn.Linear(8, 8).double()
    together = in_threads(lambda seed: solve(seed, net, 0.5 if seed % 2 else 0.0), 24)
    for seed in range(0, 24, 2):
        (alone, grad), (beside, its_grad) = solve(seed, net, 0.0), together[seed]
        assert torch.equal(alone.value, beside.value)
        assert relative(its_grad, grad) < 1e-12


def test_a_deadlock_ends_with_an_error(monkeypatch):
    """F waits for a thread that itself waits for its turn to call a random F."""
    monkeypatch.setattr(randomness, "WAIT", 0.2)
    net = nn.Linear(8, 8).double()

    def waiting(h):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(solve, 0, net, 0.5).result(timeout=60)
        return 0.5 * h

    with pytest.raises(sg.SteadyStateError, match=r"another thread.*one thread"):
        sg.steady_state(waiting, torch.ones(3))


def test_the_choice_of_attention_is_restored():
    def task(_):
        with differentiable_attention():
            return torch.backends.cuda.flash_sdp_enabled()

    before = torch.backends.cuda.flash_sdp_enabled()
    assert not any(in_threads(task, 200))
    assert torch.backends.cuda.flash_sdp_enabled() == before


@pytest.mark.parametrize("gradient", ["auto", sg.BPTT(checkpoints=3)], ids=repr)
def test_draws_beside_the_solves_leave_their_masks_alone(gradient):
    """Threads that draw their inputs from torch's random state, which is one for all, in the middle of other threads' solves."""
    net = nn.Linear(8, 8).double()

    def task(_):
        x = torch.randn(3, 8, dtype=torch.float64)

        def dropped(h):
            return torch.dropout(torch.tanh(0.3 * net(h) + x), 0.5, True)

        solution = sg.steady_state(dropped, torch.zeros_like(x), on_failure="raise", forward=LONG, gradient=gradient)
        return x, solution.value.detach(), torch.autograd.grad(solution.value.sum(), net.weight)[0]

    for x, h, grad in in_threads(task, 60):
        mask = 2.0 * (h != 0)
        alone = sg.steady_state(lambda h: mask * torch.tanh(0.3 * net(h) + x), torch.zeros_like(x), forward=LONG)  # noqa: B023
        assert relative(h, alone.value.detach()) < 1e-9
        assert relative(grad, torch.autograd.grad(alone.value.sum(), net.weight)[0]) < 1e-8


def test_an_f_that_draws_nothing_is_not_taken_for_one_that_does():
    """Whatever other threads draw during its first calls."""

    def task(seed):
        torch.randn(1000)
        frozen = randomness.FrozenRandomness(torch.device("cpu"))
        for _ in range(3):
            frozen.call(lambda: sum(range(2000)))
        return frozen.draws

    assert not any(in_threads(task, 200))


def test_draws_that_never_stop_end_with_an_error(monkeypatch):
    monkeypatch.setattr(randomness, "TRIES", 3)
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    frozen, counts = randomness.FrozenRandomness(torch.device("cpu")), itertools.count(1)
    try:
        with pytest.raises(sg.SteadyStateError, match=r"other threads drew.*torch\.Generator of their own"):
            frozen.call(lambda: torch.rand(next(counts)))
    finally:
        over.set()
        other.join()
