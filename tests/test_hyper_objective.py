"""Objectives that yield parts of a sum: the same values and gradients, one part in memory at a time."""

import pytest
import torch
from torch import nn

import steadygrad as sg
from steadygrad import hyper
from trainings import data, in_double, on, small_net, squared


@pytest.fixture(autouse=True)
def double():
    with in_double():
        yield


class TestObjectiveInParts:
    """An objective may yield parts of a sum, and then never has more than one of them in memory."""

    def parts(self, x, y, log=None):
        def objective(model, hyper):
            for i in range(0, len(x), 5):
                part = (model(x[i : i + 5]) - y[i : i + 5]).square().sum() / len(x)
                if log is not None:
                    log.append("made")
                    part.register_hook(lambda _: log.append("differentiated"))
                yield part
            yield 0.1 * hyper["decay"]

        return objective

    @pytest.mark.parametrize("method", ["bptt", sg.TBPTT(steps=5), "forward", "auto"], ids=str)
    def test_the_sum_has_the_same_value_and_gradient(self, method):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(small_net(), squared, rate=0.1)

        def whole(model, hyper):
            return on(xv, yv)(model, hyper) + 0.1 * hyper["decay"]

        def run(objective):
            return hyper.hypergradient(
                step, {"decay": 0.3}, objective, batches=[(x, y)], steps=40, method=method, on_failure="ignore"
            )

        found, expected = run(self.parts(xv, yv)), run(whole)
        assert found.loss == pytest.approx(expected.loss, rel=1e-14)
        # Of an adjoint that is solved to 1e-10, the rounding of b may move the digits beyond.
        torch.testing.assert_close(found.gradients, expected.gradients, rtol=1e-10 if method == "auto" else 1e-11, atol=0)

    @pytest.mark.parametrize("method", ["bptt", "auto"])
    def test_one_part_is_differentiated_before_the_next_is_made(self, method):
        (x, y), (xv, yv) = data(), data()
        log: list[str] = []
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.1)
        hyper.hypergradient(
            step, {"decay": 0.3}, self.parts(xv, yv, log), batches=[(x, y)], steps=3, method=method, on_failure="ignore"
        )
        assert log == ["made", "differentiated"] * 4

    def test_tuning_and_its_validation_take_parts(self):
        (x, y), (xv, yv) = data(), data()
        step = hyper.SGD(nn.Linear(3, 1), squared, rate=0.1)

        def tune(objective, validation):
            return hyper.tune(
                step, {"decay": hyper.Log(0.1)}, objective, batches=[(x, y)], steps=30, meta_steps=3, method="bptt",
                validation=validation, patience=5, progress=False,
            ).history  # fmt: skip

        def whole(model, hyper):
            return on(xv, yv)(model, hyper) + 0.1 * hyper["decay"]

        found, expected = tune(self.parts(xv, yv), self.parts(xv, yv)), tune(whole, whole)
        assert [e.validation for e in found] == pytest.approx([e.validation for e in expected], rel=1e-12)

    def test_no_part_at_all_is_refused(self):
        (x, y), step = data(), hyper.SGD(nn.Linear(3, 1), squared, rate=0.1)
        used_up = iter([])
        with pytest.raises(ValueError, match="yielded no part"):
            hyper.hypergradient(step, {"decay": 0.3}, lambda model, hyper: used_up, batches=[(x, y)], steps=3)

    def test_parts_that_share_a_computation_are_refused_with_advice(self):
        (x, y), step = data(), hyper.SGD(nn.Linear(3, 1), squared, rate=0.1)

        def objective(model, hyper):
            shared = model.weight.square().sum().exp()
            for part in (model(x) - y).square().split(10):
                yield part.detach().mean() + shared

        with pytest.raises(ValueError, match="yield what they share as a part of its own"):
            hyper.hypergradient(step, {"decay": 0.3}, objective, batches=[(x, y)], steps=3, method="bptt")
