"""ARTBP is unbiased: its mean is the BPTT gradient."""

import pytest
import torch

import steadygrad as sg
from problems import relative, tanh_problem

FORWARD = sg.Picard(max_steps=8, rtol=0)


def draws(make, forward, count):
    F, W, _, h0 = tanh_problem(size=4, rows=2)
    found = [
        torch.autograd.grad(sg.steady_state(F, h0, forward=forward, gradient=make(seed)).value.square().sum(), W)[0]
        for seed in range(count)
    ]
    return torch.stack(found)


def exact(forward):
    F, W, _, h0 = tanh_problem(size=4, rows=2)
    return torch.autograd.grad(sg.steady_state(F, h0, forward=forward, gradient="bptt").value.square().sum(), W)[0]


LAWS = [lambda seed: sg.ARTBP(seed=seed), lambda seed: sg.ARTBP("poisson", mean=3.0, seed=seed)]


@pytest.mark.parametrize("forward", [FORWARD, sg.Picard(max_steps=12, rtol=1e-2)], ids=repr)
@pytest.mark.parametrize("make", LAWS, ids=["uniform", "poisson"])
def test_mean_is_the_exact_gradient(make, forward):
    sample = draws(make, forward, 600)
    # one direction is one test: a maximum over entries would need a correction for their number
    direction = exact(forward)
    projected = (sample * direction).flatten(1).sum(1)
    standard_error = projected.std() / len(projected) ** 0.5
    assert abs(projected.mean() - direction.square().sum()) < 3 * standard_error


@pytest.mark.parametrize("make", LAWS, ids=["uniform", "poisson"])
def test_expectation_in_closed_form(make):
    """Weigh one draw for each length by its probability: the sum is BPTT to rounding."""
    total = FORWARD.max_steps
    chances = make(0).probabilities(total)
    assert chances.sum().item() == pytest.approx(1.0)
    seen = {}
    F, W, _, h0 = tanh_problem(size=4, rows=2)
    for seed in range(4000):
        steps = int(torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(seed))) + 1
        if steps not in seen:
            seen[steps] = torch.autograd.grad(
                sg.steady_state(F, h0, forward=FORWARD, gradient=make(seed)).value.square().sum(), W
            )[0]
        if len(seen) == total:
            break
    assert len(seen) == total
    mean = sum(chances[steps - 1] * grad for steps, grad in seen.items())
    assert relative(mean, exact(FORWARD)) < 1e-12


def test_poisson_sits_where_it_was_asked():
    chances = sg.ARTBP("poisson", mean=95.0).probabilities(100)
    counts = torch.arange(1, 101, dtype=torch.float64)
    assert 90 < (chances * counts).sum() < 96


def test_same_seed_same_gradient():
    assert torch.equal(draws(lambda _: sg.ARTBP(seed=5), FORWARD, 2)[0], draws(lambda _: sg.ARTBP(seed=5), FORWARD, 2)[1])


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (lambda: sg.ARTBP("poison", mean=3.0), "truncation must be"),
        (lambda: sg.ARTBP("poisson"), "give mean"),
        (lambda: sg.ARTBP(mean=3.0), "give mean"),
        (lambda: sg.ARTBP("poisson", mean=-1.0), "mean must be positive"),
    ],
)
def test_bad_settings(bad, match):
    with pytest.raises(ValueError, match=match):
        bad()


def test_damping_is_refused():
    F, _, _, h0 = tanh_problem()
    with pytest.raises(ValueError, match="takes no damping"):
        sg.steady_state(F, h0, forward=sg.Picard(damping=0.5), gradient="artbp")
