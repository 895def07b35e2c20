"""Bad input to hypergradient: refused with words that help."""

import math

import pytest
import torch
from torch import nn

import steadygrad as sg
from steadygrad import hyper
from trainings import data, in_double, on, squared


@pytest.fixture(autouse=True)
def double():
    with in_double():
        yield


class TestBadInput:
    def call(self, **changes):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.1)
        options = {"step": step, "hyper": {"decay": 0.1}, "objective": on(xv, yv), "batches": [(x, y)], "steps": 3, **changes}
        step, values, objective = options.pop("step"), options.pop("hyper"), options.pop("objective")
        return hyper.hypergradient(step, values, objective, **options)

    @pytest.mark.parametrize(
        ("changes", "error", "words"),
        [
            ({"hyper": {}}, TypeError, "must be a dict"),
            ({"hyper": {"decay": math.nan}}, ValueError, "not finite"),
            ({"hyper": {"decay": torch.tensor(1)}}, TypeError, "floating point"),
            ({"hyper": {"rate": torch.ones(3)}}, ValueError, "one for each of the 2 parameter tensors"),
            ({"steps": 0}, ValueError, "steps must be at least 1"),
            ({"batches": (torch.ones(2, 3), torch.ones(2, 1))}, TypeError, "looks like one batch"),
            ({"batches": iter([1])}, TypeError, "read once"),
            ({"batches": []}, ValueError, "empty"),
            ({"method": "forwrad"}, ValueError, "Did you mean 'forward'"),
            ({"method": "artbp"}, ValueError, "no hypergradients|not available"),
            ({"method": "bptt", "last": hyper.Average(2)}, ValueError, "for implicit methods"),
            ({"last": 3}, TypeError, "last must be"),
            ({"objective": lambda model, hyper: 1.0}, TypeError, "one number as a tensor"),
            ({"objective": lambda model, hyper: model(torch.ones(2, 3))}, TypeError, "Take a mean"),
            ({"objective": lambda model, hyper: model(torch.ones(2, 3)).detach().mean()}, sg.SteadyStateError, "detach"),
            ({"on_failure": "shout"}, ValueError, "on_failure"),
            ({"hyper": {"decay": None}}, TypeError, "must be a number or a tensor; got None"),
            ({"hyper": {"decay": hyper.Log(0.1)}}, TypeError, "Constraints are for tune"),
            ({"state": {"parameters": {}}}, TypeError, r"like its initial\(\)"),
            (
                {"state": hyper.SGD(nn.Linear(2, 1), squared).initial()},
                ValueError,
                r"shape \(1, 2\) where the model has \(1, 3\)",
            ),
        ],
    )
    def test_says_what_to_do(self, changes, error, words):
        with pytest.raises(error, match=words):
            self.call(**changes)

    def test_a_loss_without_a_graph(self):
        step = hyper.SGD(nn.Linear(3, 1), lambda model, batch, hyper: model(batch[0]).detach().mean())
        with pytest.raises(ValueError, match="does not depend on the parameters"):
            self.call(step=step)

    def test_a_loss_that_is_no_scalar(self):
        step = hyper.SGD(nn.Linear(3, 1), lambda model, batch, hyper: model(batch[0]))
        with pytest.raises(TypeError, match="Take a mean"):
            self.call(step=step)

    def test_training_that_explodes(self):
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=1e6)
        with pytest.raises(hyper.NonfiniteError, match="left the finite numbers"):
            self.call(step=step, steps=200)

    @pytest.mark.parametrize("rate", ["0.1", [0.1, 0.2], True, None])
    def test_a_setting_that_is_no_number(self, rate):
        with pytest.raises(TypeError, match="rate must be a number"):
            hyper.SGD(nn.Linear(3, 1), squared, rate=rate)

    def test_a_setting_of_the_wrong_length(self):
        with pytest.raises(ValueError, match="one for each of the 2 parameter tensors"):
            hyper.Adam(nn.Linear(3, 1), squared, beta1=torch.full((3,), 0.9))

    def test_a_loss_that_cannot_be_called(self):
        with pytest.raises(TypeError, match="loss must be callable"):
            hyper.SGD(nn.Linear(3, 1), None)

    def test_inference_mode(self):
        with torch.inference_mode(), pytest.raises(sg.SteadyStateError, match="inference_mode"):
            self.call()

    def test_a_model_without_parameters(self):
        with pytest.raises(ValueError, match="nothing to train"):
            hyper.SGD(nn.Tanh(), squared)
        with pytest.raises(TypeError, match="Module"):
            hyper.SGD(lambda x: x, squared)
