"""When an iteration is looked at, and that looking does not change what it does."""

import numpy
import torch

import steadygrad as sg
from steadygrad.iteration.goal import Goal
from steadygrad.iteration.history import History


def test_a_linear_equation_with_a_count_is_looked_at_ever_more_seldom_and_at_the_end():
    goal, looks = Goal(limit=301, rtol=None, scale=numpy.ones((1, 1))), [0]
    while looks[-1] < goal.limit:
        looks.append(goal.due(looks[-1], numpy.inf))
    assert looks == [0, 10, 20, 30, 40, 53, 70, 93, 124, 165, 220, 293, 301]
    assert [goal.due(20, left) for left in (3.5, 25.7, 45.0)] == [30, 45, 60]  # when what is left will be negligible


def test_a_search_with_a_count_keeps_every_tenth_residual():
    solution = sg.steady_state(lambda h: 0.5 * h + 1, torch.zeros(3), forward=sg.Picard(max_steps=32, rtol=0))
    assert [step for step, _ in solution.residuals] == [1, 10, 20, 30, 32]


def test_the_end_is_looked_at_where_it_is_a_little_further_than_one_dares_to_look_ahead():
    goal = Goal(limit=1000, rtol=1e-5)
    assert [goal.due(30, left) for left in (9.5, 12.5, 13.5, 80)] == [40, 43, 40, 40]


def test_what_problems_need_that_go_on_is_forecast_without_those_that_have_ended():
    history = History()
    for step in (1, 5, 9):
        history.note(step, numpy.array([1e-9, 1e-9, 1.0 / step]), numpy.array([1e-4, 1e-4, 1e5 / step]))
    assert history.steps_left_of_half() == 0.0
    history.only(numpy.array([False, False, True]))
    assert history.steps_left_of_half() == history.steps_left() > 0.0


def test_several_small_problems_are_looked_at_less_often_than_one_and_as_often_where_they_are_large():
    def looks(rows, size, batch_dims):
        x = torch.linspace(1, 2, rows * size).reshape(rows, size)
        solution = sg.steady_state(
            lambda h, x: 0.95 * h + x, torch.zeros(rows, size), x, forward=sg.Picard(max_steps=500), batch_dims=batch_dims
        )
        return [step for step, _ in solution.residuals][:4]

    assert looks(8, 4, 0) == [1, 2, 18, 30]
    assert looks(8, 4, 1) == [1, 2, 18, 34]
    assert looks(8, 2048, 1) == [1, 2, 18, 30]
