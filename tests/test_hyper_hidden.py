"""What autograd, or the swapping of parameters, does not see: made right, or refused, or reported; never silent."""

import pytest
import torch
from torch import nn

import steadygrad as sg
from steadygrad import hyper
from trainings import data, difference, in_double, on, small_net, squared

HIDDEN = "is wrong. Something in"


@pytest.fixture(autouse=True)
def double():
    with in_double():
        yield


def run(net, loss=squared, values=None, objective=None, method="bptt", steps=5, **options):
    torch.manual_seed(3)
    (x, y), (xv, yv) = data(12), data(12)
    step = hyper.SGD(net, loss, rate=0.1, momentum=0.3)
    return hyper.hypergradient(
        step, values or {"decay": 0.2}, objective or on(xv, yv), batches=[(x, y)], steps=steps, method=method, **options
    )


def check_against_differences(net, name="decay", **options):
    values = {name: torch.tensor(0.2)}
    expected = difference(lambda changed: run(net, values=changed, **options).loss, values, name)
    for method in ("bptt", "forward"):
        assert run(net, values=values, method=method, **options).gradients[name].item() == pytest.approx(expected, rel=1e-6)


class NormAndTanh(nn.BatchNorm1d):
    def forward(self, input):
        return super().forward(input).tanh()


class TestBatchNorm:
    @pytest.mark.parametrize("options", [{}, {"affine": False}, {"bias": False}], ids=str)
    @pytest.mark.parametrize("norm", [NormAndTanh, nn.BatchNorm1d])
    def test_of_every_kind(self, norm, options):
        net = nn.Sequential(nn.Linear(3, 4), norm(4, **options), nn.Linear(4, 1))
        check_against_differences(net)
        found = run(net)
        hyper.SGD(net, squared).load(found.state)
        torch.manual_seed(3)
        _, (xv, yv) = data(12), data(12)
        assert on(xv, yv)(net.eval(), {}).item() == pytest.approx(found.loss, rel=1e-12)

    def test_a_pass_in_eval_mode_within_the_loss_leaves_the_statistics(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

        def loss(model, batch, hyper):
            model.eval()
            smooth = model(batch[0]).square().mean()
            model.train()
            return squared(model, batch, {}) + 0.1 * smooth

        check_against_differences(net, loss=loss)

        def once(model, batch, hyper):
            return squared(model, batch, {})

        alone, with_eval = (run(net, loss=f, steps=1).state["statistics"] for f in (once, loss))
        torch.testing.assert_close(with_eval, alone)

    def test_statistics_that_follow_the_weights_without_a_derivative_are_refused(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

        def loss(model, batch, hyper):
            with torch.no_grad():
                target = model(batch[0])
            return (model(batch[0]) - target).square().mean() + squared(model, batch, {})

        with pytest.raises(ValueError, match="1 updates its running statistics under no_grad"):
            run(net, loss=loss)

    def test_an_objective_in_training_mode_uses_the_batch(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

        def objective(model, hyper):
            return on(xv, yv)(model.train(), hyper)

        xv, yv = data(12)
        found = run(net, objective=objective)
        hyper.SGD(net, squared).load(found.state)
        assert objective(net, {}).item() == pytest.approx(found.loss, rel=1e-12)


class Averaged(nn.Module):
    """Keeps an average of its weight in a buffer, and evaluates with that."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 1)
        self.register_buffer("average", torch.zeros(1, 3))

    def forward(self, x):
        if self.training:
            self.average.mul_(0.9).add_(0.1 * self.inner.weight.detach())
            return self.inner(x)
        return x @ self.average.T + self.inner.bias


def instance_norm():
    norm = nn.InstanceNorm1d(3, track_running_stats=True)
    return nn.Sequential(nn.Linear(3, 6), nn.Unflatten(1, (3, 2)), norm, nn.Flatten(), nn.Linear(6, 1))


class TestBuffers:
    @pytest.mark.parametrize("net", [Averaged, instance_norm])
    def test_those_that_follow_the_weights_and_are_used_are_reported(self, net):
        with pytest.warns(UserWarning, match="objective uses buffers that training changes"):
            run(net())

    def test_those_that_are_not_used_are_not(self):
        class Counting(nn.Linear):
            def __init__(self):
                super().__init__(3, 1)
                self.register_buffer("count", torch.zeros(()))

            def forward(self, x):
                self.count += 1.0
                return super().forward(x)

        assert run(Counting()).gradients["decay"] != 0  # a warning would fail


class TestHiddenFromAutograd:
    def test_a_target_without_gradient(self):
        def loss(model, batch, hyper):
            with torch.no_grad():
                target = 0.5 * model(batch[0])
            return (model(batch[0]) - target).square().mean() + squared(model, batch, {})

        net = small_net()
        with pytest.warns(UserWarning, match=HIDDEN):
            run(net, loss=loss)

    def test_a_hyperparameter_that_is_partly_a_number(self):
        def loss(model, batch, hyper):
            x, y = batch
            return (model(x) - y * (1 - hyper["s"].item())).square().mean() + hyper["s"] * model(x).square().mean()

        with pytest.warns(UserWarning, match="in its hyperparameters.*" + HIDDEN):
            run(small_net(), loss=loss, values={"s": 0.3})

    def test_forward_mode_does_not_take_what_autograd_does_not_see(self):
        """torch.func passes through no_grad, so with many tangents the result would depend on their number."""

        def loss(model, batch, hyper):
            with torch.no_grad():
                target = 0.5 * model(batch[0])
            return (model(batch[0]) - target).square().mean() + hyper["many"].sum() * squared(model, batch, {})

        few, many = (
            run(small_net_of(0), loss, {"decay": 0.2, "many": torch.full((n,), 1 / n)}, method="forward", check=False).gradients[
                "decay"
            ]
            for n in (1, 20)
        )
        torch.testing.assert_close(few, many)

    @pytest.mark.parametrize("decay", [0.5, 1e-4, 1e-7])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_rounding_is_no_fault(self, dtype, decay):
        for seed in range(10):
            torch.manual_seed(seed)
            x, y = torch.randn(10, 1, dtype=dtype), torch.randn(10, 1, dtype=dtype)
            step = hyper.SGD(nn.Linear(1, 1, bias=False).to(dtype), squared, rate=0.1)
            hyper.hypergradient(step, {"decay": decay}, on(x, y), batches=[(x, y)], steps=2, method="bptt")  # would warn

    def test_it_is_looked_for_once_a_step(self):
        calls = []

        def loss(model, batch, hyper):
            calls.append(1)
            return squared(model, batch, {})

        (x, y), step = data(), hyper.SGD(nn.Linear(3, 1), loss, rate=0.1)
        counts = []
        for check in (None, None, False, True):
            calls.clear()
            hyper.hypergradient(step, {"decay": 0.2}, on(x, y), batches=[(x, y)], steps=3, method="bptt", check=check)
            counts.append(len(calls))
        assert counts[1] == counts[2] == 3 < counts[0]
        assert counts[3] > 3

    def test_a_step_of_ones_own_that_warms_up(self):
        def step(state, hyper, batch):
            w, t = state["w"].detach().requires_grad_(), state["t"]
            with torch.enable_grad():
                (g,) = torch.autograd.grad((w - 1).pow(4).sum(), w)  # no graph
            return {"w": state["w"] - hyper["rate"] * min(1.0, int(t) / 3) * g, "t": t + 1}

        state = {"w": torch.zeros(2), "t": torch.tensor(0)}
        with pytest.warns(UserWarning, match="in its state.*" + HIDDEN):
            hyper.hypergradient(
                step, {"rate": 0.02}, lambda s, h: s["w"].sum(), batches=[None], steps=9, state=state, method="bptt"
            )

    def test_looking_reads_no_batch_beyond_training(self):
        """A step that does not move at all is looked at on the batches that training has."""
        given = [torch.ones(2), torch.zeros(2)]

        def step(state, hyper, batch):
            return {"w": state["w"] + 0 * hyper["c"] * batch}

        hyper.hypergradient(
            step, {"c": 0.5}, lambda s, h: s["w"].sum(), batches=lambda t: given[t], steps=2, state={"w": torch.ones(2)},
            method="bptt", on_failure="ignore",
        )  # fmt: skip


def small_net_of(seed):
    torch.manual_seed(seed)
    return small_net()


class TestRefusals:
    def test_parameters_taken_from_the_module_before(self):
        net = nn.Linear(3, 1)
        before = list(net.parameters())

        def loss(model, batch, hyper):
            return squared(model, batch, {}) + 0.5 * sum(p.square().sum() for p in before)

        with pytest.raises(ValueError, match="uses bias as it was taken from the module before"):
            run(net, loss=loss)

    def test_an_objective_that_does_not_see_the_state(self):
        def objective(model, hyper):
            with torch.no_grad():
                value = model(torch.ones(2, 3)).square().mean()
            return value + 0.1 * hyper["decay"] ** 2

        with pytest.raises(sg.SteadyStateError, match="does not depend on the trained state"):
            run(nn.Linear(3, 1), objective=objective)

    def test_complex_parameters(self):
        class Complex(nn.Linear):
            def __init__(self):
                super().__init__(3, 1)
                self.phase = nn.Parameter(torch.ones(1, dtype=torch.complex128))

            def forward(self, x):
                return super().forward(x) * (self.phase * 1j).real

        with pytest.raises(TypeError, match="complex tensors"):
            run(Complex())

    def test_an_embedding_that_rescales_its_weights(self):
        with pytest.raises(ValueError, match="0 has max_norm"):
            hyper.SGD(nn.Sequential(nn.Embedding(5, 3, max_norm=1.0), nn.Linear(3, 1)), squared)


class TestOddButRight:
    def test_a_loss_that_changes_its_dict(self):
        def loss(model, batch, hyper):
            hyper["w"] = hyper["w"].clamp(min=0) + 0.1
            return squared(model, batch, {}) + hyper.pop("w") * model.weight.square().sum()

        check_against_differences(nn.Linear(3, 1), "w", loss=loss)

    def test_a_parameter_without_dimensions(self):
        class Scaled(nn.Linear):
            def __init__(self):
                super().__init__(3, 1)
                self.scale = nn.Parameter(torch.tensor(1.3))

            def forward(self, x):
                return self.scale * super().forward(x)

        net = Scaled()
        check_against_differences(net)
        assert run(net, check=True).agreement == pytest.approx(1)

    def test_a_step_that_puts_tensors_into_its_state(self):
        def step(state, hyper, batch):
            state["w"] = state["w"] - 0.1 * (state["w"] - 1 / (1 + hyper["c"]))
            return state

        start = {"w": torch.zeros(2)}
        found = hyper.hypergradient(
            step, {"c": 0.5}, lambda s, h: s["w"].square().sum(), batches=[None], steps=6, state=start, method="bptt", check=True
        )
        assert found.agreement == pytest.approx(1)
        assert not start["w"].any()

    def test_adam_moves_in_bfloat16(self):
        net = nn.Linear(3, 1).to(torch.bfloat16)
        x, y = (t.to(torch.bfloat16) for t in data())
        step = hyper.Adam(net, squared, rate=0.05)
        state = step.initial()
        with torch.no_grad():
            for _ in range(20):
                state = step(state, {}, (x, y))
        reference = torch.optim.Adam(net.parameters(), lr=0.05)
        for _ in range(20):
            reference.zero_grad()
            squared(net, (x, y), {}).backward()
            reference.step()
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(state["parameters"][name], parameter.detach(), rtol=0.1, atol=0.05)
