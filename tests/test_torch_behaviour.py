"""What a torch user expects of anything with a grad_fn."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import steadygrad as sg
from problems import relative, tanh_problem

EVERY = ["auto", "rbp", "cg-rbp", "neumann-rbp", "one-step", "dense", "bptt", "tbptt", "artbp"]


@pytest.mark.parametrize("gradient", EVERY)
class TestModes:
    def test_no_grad(self, gradient):
        F, _, _, h0 = tanh_problem()
        with torch.no_grad():
            solution = sg.steady_state(F, h0, gradient=gradient)
        assert not solution.value.requires_grad
        assert solution.converged

    def test_inference_mode(self, gradient):
        F, _, _, h0 = tanh_problem()
        with torch.inference_mode():
            solution = sg.steady_state(F, h0, gradient=gradient)
        assert solution.value.is_inference()
        assert torch.equal(solution.value, sg.steady_state(F, h0).value)

    def test_nothing_needs_a_gradient(self, gradient):
        F, W, x, h0 = tanh_problem()
        W.requires_grad_(False)
        x.requires_grad_(False)
        assert not sg.steady_state(F, h0, gradient=gradient).value.requires_grad

    def test_frozen_parameters(self, gradient):
        F, W, x, h0 = tanh_problem()
        W.requires_grad_(False)
        sg.steady_state(F, h0, gradient=gradient).value.sum().backward()
        assert W.grad is None
        assert x.grad.norm() > 0

    def test_retain_graph_and_two_passes(self, gradient):
        F, W, _, h0 = tanh_problem()
        value = sg.steady_state(F, h0, gradient=gradient).value
        value.sum().backward(retain_graph=True)
        first = W.grad.clone()
        value.sum().backward()
        assert torch.allclose(W.grad, 2 * first)
        with pytest.raises(RuntimeError, match="second time"):
            value.sum().backward()

    def test_two_losses_share_the_state(self, gradient):
        F, W, _, h0 = tanh_problem()
        seeded = sg.ARTBP(seed=1) if gradient == "artbp" else gradient
        value = sg.steady_state(F, h0, gradient=seeded).value
        (together,) = torch.autograd.grad(value.sum() + value.square().sum(), W, retain_graph=True)
        one, two = (torch.autograd.grad(loss, W, retain_graph=True)[0] for loss in (value.sum(), value.square().sum()))
        assert relative(one + two, together) < 1e-4

    def test_value_may_be_changed_in_place(self, gradient):
        F, W, _, h0 = tanh_problem()
        seeded = sg.ARTBP(seed=1) if gradient == "artbp" else gradient
        plain = sg.steady_state(F, h0, gradient=seeded).value
        (expected,) = torch.autograd.grad((2 * plain).sum(), W)
        value = sg.steady_state(F, h0, gradient=seeded).value
        value.mul_(2)
        assert relative(torch.autograd.grad(value.sum(), W)[0], expected) < 1e-12

    def test_parameter_changed_before_backward_raises(self, gradient):
        F, W, _, h0 = tanh_problem()
        value = sg.steady_state(F, h0, gradient=gradient).value
        with torch.no_grad():
            W.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            value.sum().backward()

    def test_h0_is_left_alone(self, gradient):
        F, _, _, h0 = tanh_problem()
        before = h0.clone()
        value = sg.steady_state(F, h0, gradient=gradient).value
        value.detach().add_(1)
        assert torch.equal(h0, before)

    def test_value_shares_no_memory_with_what_f_returns(self, gradient):
        x = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            sg.steady_state(lambda h: x, torch.zeros(3), gradient=gradient).value.add_(1)
        value = sg.steady_state(lambda h: x, torch.zeros(3), gradient=gradient).value
        value.add_(1)
        assert torch.equal(x, torch.ones(3))

    def test_f_that_ignores_the_state(self, gradient):
        x = torch.ones(3, requires_grad=True)
        seeded = sg.ARTBP("poisson", mean=1e-6) if gradient == "artbp" else gradient
        solution = sg.steady_state(lambda h: 2 * x, torch.zeros(3), gradient=seeded)
        solution.value.sum().backward()
        assert torch.allclose(x.grad, torch.full((3,), 2.0))

    def test_identity_update(self, gradient):
        """F(h) = h: every state is steady and I − J = 0; whatever happens is said, not hidden."""
        x = torch.zeros(3, requires_grad=True)
        solution = sg.steady_state(lambda h: h + x, torch.ones(3), gradient=gradient, on_failure="ignore")
        assert solution.converged
        solution.value.sum().backward()
        assert solution.adjoint is None or not solution.adjoint.converged


class TestNested:
    def test_leaves_are_independent(self):
        a = torch.tensor(0.5, requires_grad=True)
        for gradient in ("auto", "bptt"):
            one, two = sg.steady_state(
                lambda h: (a * h[0] + 1, a * h[1] + 1), (torch.zeros(2), torch.zeros(2)), gradient=gradient
            ).value
            kept = two.exp()
            one.mul_(3)
            (one.sum() + kept.sum()).backward()


@pytest.mark.parametrize("gradient", ["auto", "neumann-rbp", "cg-rbp"])
class TestCheckpoint:
    def test_around_the_layer_runs_it_twice(self, gradient):
        F, W, x, h0 = tanh_problem()
        calls = {"layer": 0, "F": 0}

        def counted(h):
            calls["F"] += 1
            return F(h)

        def layer(x):
            calls["layer"] += 1
            return sg.steady_state(counted, h0, gradient=gradient, forward=sg.Picard(max_steps=30, rtol=0)).value

        value = checkpoint(layer, x, use_reentrant=False)
        once = calls["F"]
        value.square().sum().backward()
        assert calls == {"layer": 2, "F": 2 * once}
        (plain,) = torch.autograd.grad(
            sg.steady_state(F, h0, gradient=gradient, forward=sg.Picard(max_steps=30, rtol=0)).value.square().sum(), W
        )
        assert torch.equal(W.grad, plain)

    def test_inside_f(self, gradient):
        F, W, _, h0 = tanh_problem()
        value = sg.steady_state(lambda h: checkpoint(F, h, use_reentrant=False), h0, gradient=gradient).value
        (ours,) = torch.autograd.grad(value.sum(), W)
        (plain,) = torch.autograd.grad(sg.steady_state(F, h0, gradient=gradient).value.sum(), W)
        assert relative(ours, plain) < 1e-12

    @pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
    def test_reentrant_inside_f_is_refused(self, gradient):
        F, _, _, h0 = tanh_problem()
        with pytest.raises(sg.SteadyStateError, match="use_reentrant=False"):
            sg.steady_state(lambda h: checkpoint(F, h, use_reentrant=True), h0, gradient=gradient)

    @pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
    def test_reentrant_in_part_of_f_is_refused(self, gradient):
        F, W, x, h0 = tanh_problem()
        scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        with pytest.raises(sg.SteadyStateError, match="use_reentrant=False"):
            value = sg.steady_state(lambda h: scale * checkpoint(F, h, use_reentrant=True) + x, h0, gradient=gradient).value
            value.sum().backward()


class TestDropout:
    @pytest.mark.parametrize("gradient", ["auto", "cg-rbp", "bptt", "tbptt"])
    def test_one_mask_a_solve(self, gradient):
        F, _, _, h0 = tanh_problem()
        drop = nn.Dropout(0.5)
        first = sg.steady_state(lambda h: drop(F(h)), h0, gradient=gradient)
        second = sg.steady_state(lambda h: drop(F(h)), h0, gradient=gradient)
        assert first.converged
        assert not torch.equal(first.value == 0, second.value == 0)

    def test_gradient_has_the_same_mask(self):
        F, W, _, h0 = tanh_problem()
        drop = nn.Dropout(0.5)
        found = []
        for gradient in ("cg-rbp", "bptt"):
            torch.manual_seed(1)
            value = sg.steady_state(lambda h: drop(F(h)), h0, gradient=gradient, forward=sg.Picard(max_steps=300, rtol=0)).value
            found.append(torch.autograd.grad(value.sum(), W)[0])
        assert relative(*found) < 1e-9

    def test_update_without_randomness_leaves_the_generator_alone(self):
        F, _, _, h0 = tanh_problem()
        before = torch.get_rng_state()
        sg.steady_state(F, h0)
        assert torch.equal(before, torch.get_rng_state())


def test_layer_in_a_larger_network_trains():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), sg.Equilibrium(nn.GRUCell(4, 6), forward=sg.Picard(max_steps=500)), nn.Linear(6, 1))
    x, y = torch.randn(32, 5), torch.randn(32, 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(p.grad is not None for p in model.parameters())
