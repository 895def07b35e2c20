"""cell(x, h): a cell written for the other order is found out, where anything tells."""

import pytest
import torch
from torch import nn

import steadygrad as sg
from problems import relative


class StateFirst(nn.Module):
    """A block of torchdeq: f(z, x)."""

    def __init__(self, states: int, inputs: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(states, states).double(), nn.Linear(inputs, states).double()

    def forward(self, z, x):
        return torch.tanh(0.3 * self.inner(z) + (0 if x is None else self.outer(x)))


class Nameless(StateFirst):
    def forward(self, first, second):
        return super().forward(first, second)


class Keeping(nn.Module):
    """State first, the size of the first argument kept, whatever the second."""

    def forward(self, first, second):
        return 0.5 * first + second.mean()


def zeros(x):
    return torch.zeros(x.shape[0], 6, dtype=x.dtype)


X = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)


def test_names_tell():
    with pytest.raises(TypeError, match=r"takes \(z, x\).*cell\(x, h\).*state_first=True"):
        sg.Equilibrium(StateFirst(6, 4))
    with pytest.raises(TypeError, match=r"takes \(state, input\)"):
        sg.Equilibrium(lambda state, input: state)


@pytest.mark.parametrize(
    "cell", [lambda x, h: x, lambda input, hx=None: input, lambda a, b: a, lambda *args: args[0], torch.add, max]
)
def test_other_names_say_nothing(cell):
    sg.Equilibrium(cell)


def test_state_first_is_the_same_layer_as_the_cell_turned_around():
    block = StateFirst(6, 4)
    long = sg.Picard(max_steps=500, rtol=1e-13)
    ours = sg.Equilibrium(block, state_first=True, initial=zeros, forward=long)(X)
    turned = sg.Equilibrium(lambda x, h: block(h, x), initial=zeros, forward=long)(X)
    grads = [torch.autograd.grad(value.sum(), block.inner.weight)[0] for value in (ours, turned)]
    assert torch.equal(ours, turned)
    assert relative(*grads) < 1e-12
    assert sg.Equilibrium(StateFirst(4, 4), state_first=True, initial=torch.zeros_like)(X).shape == X.shape


def test_names_can_be_overruled():
    block = StateFirst(4, 4)
    layer = sg.Equilibrium(block, state_first=False, initial=torch.zeros_like, forward=sg.Picard(max_steps=500))
    assert relative(layer(X), block(X, layer.solution.value)) < 1e-5


def test_shapes_tell():
    with pytest.raises(
        ValueError, match=r"shape \(3, 4\) for a state h of shape \(3, 6\): that is the shape of the input.*state_first=True"
    ):
        sg.Equilibrium(Keeping(), initial=zeros)(X)


def test_other_shapes_are_an_error_that_mentions_the_order():
    with pytest.raises(ValueError, match=r"cell\(x, h\) returned shape \(3, 5\).*same shape.*order"):
        sg.Equilibrium(lambda x, h: h[:, :5], initial=zeros)(X)


def test_an_error_of_the_cell_mentions_the_order():
    with pytest.raises(RuntimeError) as caught:
        sg.Equilibrium(Nameless(6, 4), initial=zeros)(X)
    assert any("cell(x, h), x being its input" in note for note in caught.value.__notes__)


def test_a_cell_that_needs_its_state_mentions_the_order():
    with pytest.raises(TypeError, match=r"cell\(x, None\).*The input comes first.*state_first=True"):
        sg.Equilibrium(lambda x, h: h + x)(X)


@pytest.mark.parametrize("state_first", [True, False])
def test_representation_shows_the_order(state_first):
    layer = sg.Equilibrium(nn.GRUCell(4, 8), state_first=state_first)
    assert ("cell(h, x), forward=" if state_first else "cell(x, h), forward=") in repr(layer)


class TestWarmStartInEval:
    """Two steady states, ±tanh-like: the start decides which."""

    @staticmethod
    def layer(warm_start):
        return sg.Equilibrium(lambda x, h: torch.tanh(3 * h + x), initial=torch.zeros_like, warm_start=warm_start)

    @pytest.mark.parametrize(("warm_start", "mode", "warm"), [
        (True, True, True), (True, False, False), ("always", False, True), ("always", True, True), (False, True, False),
    ])  # fmt: skip
    def test_one_input_decides_for_the_next_only_where_asked_for(self, warm_start, mode, warm):
        layer = self.layer(warm_start).train(mode)
        layer(torch.tensor([1.0]))
        assert (layer(torch.tensor([-0.1])) > 0) == warm

    def test_other_spellings_are_refused(self):
        with pytest.raises(ValueError, match="warm_start must be"):
            self.layer("training")
