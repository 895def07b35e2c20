"""Energies that are finite in a part of space only: barriers and entropies are minimised inside, never outside."""

import pytest
import torch

import steadygrad as sg
from problems import relative

F64 = torch.float64
SEARCHES = [None, sg.NewtonCG(), sg.Minimise(every=1)]


def drawn(seed):
    generator = torch.Generator().manual_seed(seed)
    cost = torch.randn(1, 3, generator=generator, dtype=F64)
    return cost, 10 ** (-3 * torch.rand((), generator=generator, dtype=F64).item())


def barrier(h, cost, weight):
    """A linear programme on 0 < h < 2; its derivative vanishes outside of that too."""
    return (h * cost).sum(-1) - weight * (torch.log(2 - h) + torch.log(h)).sum(-1)


def centre(cost, weight):
    """Where c − w/h + w/(2 − h) = 0 inside: c·h² − 2(c + w)·h + 2w = 0."""
    return (cost + weight - (cost.square() + weight**2).sqrt()) / cost


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("forward", SEARCHES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_a_barrier_is_not_passed(seed, forward, batched):
    if isinstance(forward, sg.Minimise) and batched:
        pytest.skip("Minimise is for one problem")
    cost, weight = drawn(seed)
    cost.requires_grad_()
    start = torch.full((1, 3), 0.5, dtype=F64)
    solution = sg.minimum(barrier, start, cost, weight, forward=forward, batch_dims=int(batched), on_failure="raise")
    exact = centre(cost, weight)
    assert relative(solution.value.detach(), exact.detach()) < 1e-5
    found, true = (torch.autograd.grad(value.sum(), cost)[0] for value in (solution.value, exact))
    assert relative(found, true) < 1e-4


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("forward", [sg.Anderson(), sg.Newton(), sg.Picard()], ids=repr)
@pytest.mark.parametrize("seed", range(30))
def test_a_stationary_point_outside_is_no_minimum(seed, forward, batched):
    cost, weight = drawn(seed)
    start = torch.full((1, 3), 0.5, dtype=F64)
    solution = sg.minimum(barrier, start, cost, weight, forward=forward, batch_dims=int(batched), on_failure="ignore")
    if solution.status is sg.Status.CONVERGED:
        assert barrier(solution.value, cost, weight).isfinite().all()


@pytest.mark.parametrize("batched", [False, True])
def test_an_entropy_of_many_decades(batched):
    decades = 20.0 if batched else 4.0  # L-BFGS has one curvature for all
    potential = torch.tensor([[-0.6, 0.0, 0.2], [0.1, -1.0, 0.0]], dtype=F64) * decades

    def free_energy(h, p):
        value = (h * h.log() - h - h * p).sum(-1)
        return value if batched else value.sum()

    solution = sg.minimum(free_energy, torch.ones(2, 3, dtype=F64), potential, batch_dims=int(batched), on_failure="raise")
    assert relative(solution.value.detach(), potential.exp()) < 1e-5


def test_an_optimiser_without_a_line_search_is_sent_back():
    adam = sg.Minimise(optimiser=lambda p: torch.optim.Adam(p, lr=0.1), max_steps=50)
    cost = torch.tensor([[3.0, -2.0, 1.0]], dtype=F64)
    solution = sg.minimum(barrier, torch.full((1, 3), 0.05, dtype=F64), cost, 0.5, forward=adam, on_failure="raise")
    assert relative(solution.value, centre(cost, 0.5)) < 1e-5


def test_one_problem_outside_says_so_alone():
    def energy(h, x):
        return (h - x.log()).square().sum(-1)

    x = torch.tensor([[1.0], [-1.0], [2.0]], dtype=F64)
    solution = sg.minimum(energy, torch.zeros(3, 1, dtype=F64), x, batch_dims=1, on_failure="ignore")
    assert solution.converged.tolist() == [True, False, True]
    assert solution.problems.statuses[1] is sg.Status.NONFINITE
