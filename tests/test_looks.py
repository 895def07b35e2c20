"""When an iteration is looked at, and that looking does not change what it does."""

import numpy
import torch

import steadygrad as sg
from problems import DenseMap
from steadygrad.iteration.goal import Goal
from steadygrad.iteration.history import ResidualHistory
from steadygrad.iteration.judge import Judge
from steadygrad.iteration.norms import norms_of_one
from steadygrad.iteration.run import Run
from steadygrad.iteration.strides import Strides
from steadygrad.linear.system import System


def test_a_linear_equation_with_a_count_is_looked_at_ever_more_seldom_and_at_the_end():
    goal, looks = Goal(limit=301, rtol=None, scale=numpy.ones((1, 1))), [0]
    while looks[-1] < goal.limit:
        looks.append(goal.due(looks[-1], numpy.inf))
    assert looks == [0, 30, 40, 53, 70, 93, 124, 165, 220, 293, 301]
    assert [goal.due(20, left) for left in (3.5, 25.7, 45.0)] == [30, 45, 60]  # when what is left will be negligible


def test_a_search_with_a_count_keeps_every_tenth_residual():
    solution = sg.steady_state(lambda h: 0.5 * h + 1, torch.zeros(3), forward=sg.Picard(max_steps=32, rtol=0))
    assert [step for step, _ in solution.residuals] == [10, 20, 30, 32]


def test_the_end_is_looked_at_where_it_is_a_little_further_than_one_dares_to_look_ahead():
    goal = Goal(limit=1000, rtol=1e-5)
    assert [goal.due(30, left) for left in (9.5, 12.5, 13.5, 80)] == [40, 43, 40, 40]


def test_a_second_look_comes_no_sooner_than_a_fast_fall_would_end():
    goal = Goal(limit=1000, rtol=1e-5)
    assert [goal.soonest(1, excess) for excess in (0.5, 10.0, 500.0, 1e5, 1e9, numpy.inf, numpy.nan)] == [2, 2, 3, 4, 4, 2, 2]
    assert Goal(limit=3, rtol=1e-5).soonest(1, 1e5) == 3
    assert [Goal(limit=19, rtol=None).first_look(False), Goal(limit=20, rtol=None).first_look(False)] == [1, 10]


def test_what_problems_need_that_go_on_is_forecast_without_those_that_have_ended():
    history = ResidualHistory()
    for step in (1, 5, 9):
        history.note(step, numpy.array([1e-9, 1e-9, 1.0 / step]), numpy.array([1e-4, 1e-4, 1e5 / step]))
    assert history.steps_left_of_half() == 0.0
    history.only(numpy.array([False, False, True]))
    assert history.steps_left_of_half() == history.steps_left() > 0.0


def looks_of(solver, J, b):
    """The steps at which a solve of (I − Jᵀ) z = b is looked at."""
    goal = Goal(limit=500, rtol=1e-5, sizes=(b.shape[1],), scale=b.norm(dim=1, keepdim=True).numpy(), best=True)
    run = Run(solver, System(DenseMap(J), b), torch.zeros_like(b), goal, False, frozenset())
    run.run()
    return [step for step, _ in run.judge.trace]


def test_the_choice_looks_at_every_fourth_term_of_a_series_that_rises_and_bears_with_it():
    J, b = 1.5 * torch.linalg.qr(torch.randn(40, 40, dtype=torch.float64))[0], torch.ones(1, 40, dtype=torch.float64)
    assert looks_of(sg.Auto(), J, b)[:5] == [0, 3, 7, 11, 15]
    assert looks_of(sg.Neumann(), J, b)[:6] == [0, 1, 2, 3, 4, 5]


def test_a_guess_at_the_end_is_put_off_a_little_where_steps_are_cheap():
    start, goal = torch.zeros(1, 4), Goal(limit=100, rtol=1e-5, sizes=(4,))
    guesses = (0.0, 0.5, 0.95, 1.3, 1.9)
    for solver, due in ((sg.Picard(), [16, 16, 17, 17, 18]), (sg.Anderson(), [16, 16, 16, 17, 17])):
        strides = Strides(solver, Judge(goal, 1), start, possible=True)
        assert [strides.next_look(solver.init(torch.tanh, start), 15, left) for left in guesses] == due


def test_the_norm_of_b_is_not_taken_again(monkeypatch):
    taken = []
    monkeypatch.setattr(
        "steadygrad.iteration.run.norms_of_one", lambda vectors, sizes: taken.append(1) or norms_of_one(vectors, sizes)
    )
    J, b = 0.5 * torch.eye(8, dtype=torch.float64), torch.ones(1, 8, dtype=torch.float64)
    assert sg.Neumann(rtol=1e-3).solve(DenseMap(J), b).residual[0] <= 1e-3
    first = len(taken)
    taken.clear()
    sg.Neumann(rtol=1e-3).solve(DenseMap(J), b, torch.full_like(b, 0.1))
    assert len(taken) == first + 1


def test_several_small_problems_are_looked_at_less_often_than_one_and_as_often_where_they_are_large():
    def looks(rows, size, batch_dims):
        x = torch.linspace(1, 2, rows * size).reshape(rows, size)
        solution = sg.steady_state(
            lambda h, x: 0.95 * h + x, torch.zeros(rows, size), x, forward=sg.Picard(max_steps=500), batch_dims=batch_dims
        )
        return [step for step, _ in solution.residuals][:4]

    assert looks(8, 4, 0) == [1, 4, 16, 28]
    assert looks(8, 4, 1) == [1, 4, 20, 36]
    assert looks(8, 2048, 1) == [1, 4, 16, 28]
