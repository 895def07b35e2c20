"""Several tunings in processes: the best first, the same wherever they run, and none stops the others."""

import random
import warnings

import numpy
import pytest
import torch

import steadygrad as sg
from steadygrad import hyper
from steadygrad.calls import fresh_start
from steadygrad.hyper.many import name_of
from tunings import from_start

STARTS = [{"decay": 0.01}, {"decay": 2.5}, {"decay": 0.3, "what": "raise"}, {"decay": 0.5}]


def alone(start):
    """The tuning of a start in this process, as a worker begins it."""
    fresh_start(int(name_of(start), 16))
    return from_start(start, None)


def same(one, other):
    return repr((one.history, one.hyper, one.state)) == repr((other.history, other.hyper, other.state))


@pytest.fixture(scope="module")
def found():
    """The tunings, the warnings of the call, and what it printed is not asked for."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return hyper.tune_many(from_start, STARTS, workers=2, progress=False), [str(warning.message) for warning in caught]


def test_the_best_is_first_and_each_is_what_it_is_alone(found):
    tunings, _ = found
    losses = [tuned.loss for tuned in tunings.done]
    assert losses == sorted(losses)
    assert len(losses) == 3
    assert tunings.best.start == {"decay": 2.5}  # 2 is right
    assert all(same(tuned.tuning, alone(tuned.start)) for tuned in tunings.done)


def test_one_that_fails_is_reported_and_does_not_stop_the_others(found):
    tunings, caught = found
    (failed,) = tunings.failed
    assert failed.start == STARTS[2]
    assert failed.reason == "ValueError: this start was made to fail"
    assert "Traceback" in failed.error
    assert failed.loss == float("inf")
    text = "1 of 4 tunings failed: {'decay': 0.3, 'what': 'raise'}: ValueError: this start was made to fail"
    assert [message for message in caught if "failed" in message] == [text]


def test_killed_ones_go_on_and_end_as_if_nothing_had_been(tmp_path, capsys):
    """The first dies after its third meta step; the second call does the rest, and the finished one is only read."""
    starts = [{"decay": 0.1, "what": f"die {tmp_path / 'died'}"}, {"decay": 0.2, "what": "nothing"}]
    with pytest.raises(
        sg.SteadyStateError, match=r"2 of 2 tunings failed: .* ended by SIGKILL.*; .*it must return what hyper\.tune"
    ):
        hyper.tune_many(from_start, starts, workers=1, checkpoints=tmp_path / "kept", on_failure="raise")
    assert "tunings 1/2: {'decay': 0.1, 'what': 'die" in capsys.readouterr().err
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name == f"{name_of(starts[0])}.pt"
    assert torch.load(kept, weights_only=True)["done"] == 3
    again = hyper.tune_many(from_start, starts[:1], workers=1, checkpoints=tmp_path / "kept", progress=False)
    assert same(again.best.tuning, alone(starts[0]))


def test_bad_input():
    with pytest.raises(TypeError, match=r"worker processes cannot import .* make it a function of a module, or give cluster"):
        hyper.tune_many(lambda start, checkpoint: None, [1])
    with pytest.raises(TypeError, match="tuning must be callable"):
        hyper.tune_many(3, [1])
    with pytest.raises(ValueError, match=r"two of the starts are the same: \[1, 2, 1\]"):
        hyper.tune_many(from_start, [1, 2, 1])
    for start in (torch.ones(1), float("nan"), {1, 2}):
        with pytest.raises(TypeError, match="describe it by numbers, strings, lists and dicts"):
            hyper.tune_many(from_start, [start])
    with pytest.raises(ValueError, match="workers is 0"):
        hyper.tune_many(from_start, [1], workers=0)
    nothing = hyper.tune_many(from_start, [])
    assert (nothing.done, nothing.failed) == ([], [])
    with pytest.raises(ValueError, match=r"no tuning ended well, so none is the best. From 1: E."):
        hyper.Tunings([], [hyper.Tuned(1, None, error="E")]).best  # noqa: B018


def test_every_generator_begins_anew():
    draws = []
    for _ in range(2):
        fresh_start(2**40 + 5)
        draws.append((torch.rand(1).item(), random.random(), numpy.random.rand()))
    assert draws[0] == draws[1]
