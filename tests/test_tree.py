"""Walks over nested states and arguments."""

import collections

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadygrad.state import tree

Pair = collections.namedtuple("Pair", "left right")
leaves = st.builds(lambda n: torch.tensor(float(n)), st.integers(-5, 5))
states = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=6,
)


def reordered(state):
    """The same state with the keys of its dicts in the opposite order."""
    if isinstance(state, dict):
        return {key: reordered(state[key]) for key in reversed(state)}
    if isinstance(state, (tuple, list)):
        items = [reordered(item) for item in state]
        return type(state)(*items) if hasattr(state, "_fields") else type(state)(items)
    return state


@given(states)
def test_leaves_fill_the_template_again(state):
    template, parts = tree.template_of(state), tree.leaves_of(state)
    again = tree.fill(template, parts)
    assert again == state
    assert tree.structure_of(again) == tree.structure_of(state)
    assert all(a is b for a, b in zip(tree.leaves_of(again), parts, strict=True))


@given(states)
def test_order_of_keys_says_nothing(state):
    other = reordered(state)
    assert tree.structure_of(other) == tree.structure_of(state)
    pairs = zip(tree.in_order(tree.template_of(state), other), tree.leaves_of(state), strict=True)
    assert all(a is b for a, b in pairs)
    assert all(leaf == 0 for leaf in tree.leaves_of(tree.combine(torch.sub, state, other)))


@given(states)
def test_maps_keep_the_nesting(state):
    doubled = tree.map_state(lambda leaf: 2 * leaf, state)
    assert tree.structure_of(doubled) == tree.structure_of(state)
    assert tree.combine(torch.add, state, state) == doubled
    assert tree.map_tensors(lambda leaf: 2 * leaf, state) == doubled


def test_named_tuples_stay():
    assert isinstance(tree.map_state(torch.neg, Pair(torch.ones(1), torch.ones(1))), Pair)


def test_arguments_may_hold_anything():
    args = ({"a": torch.ones(2), "b": "text"}, 3, None)
    assert len(tree.tensors_in(args)) == 1
    doubled = tree.map_tensors(lambda x: 2 * x, args)
    assert doubled[1:] == (3, None)
    assert doubled[0]["b"] == "text"
    assert torch.equal(doubled[0]["a"], torch.full((2,), 2.0))


@pytest.mark.parametrize("walk", [tree.leaves_of, tree.template_of, lambda s: tree.map_state(torch.neg, s)])
def test_states_hold_tensors_only(walk):
    with pytest.raises(TypeError, match=r"a state is a tensor.*got str \('x'\) in it"):
        walk((torch.ones(1), "x"))


class TestAlike:
    @given(states)
    def test_a_state_and_its_image_in_another_order(self, state):
        assert tree.alike(state, reordered(tree.map_state(torch.neg, state)))

    def test_dicts_in_any_order_and_named_tuples(self):
        one = torch.ones(1)
        assert tree.alike({"a": one, "b": (one, one)}, {"b": Pair(one, one), "a": one})

    @pytest.mark.parametrize("other", [{"a": 1}, {"b": 1}, {"a": [1, 1]}, {"a": (1,)}, {"a": {}}, {"a": (1, (1,))}, 1, {}])
    def test_another_nesting(self, other):
        one = torch.ones(1)
        nested = tree.map_nested(lambda _: one, other)
        assert not tree.alike({"a": (one, one)}, nested)
        assert not tree.alike(nested, {"a": (one, one)})


def test_the_same_data():
    batch = {"x": torch.tensor([1.0, torch.nan]), "more": [torch.ones(2), "text", None]}
    assert tree.same_data(batch, dict(batch))
    assert tree.same_data([torch.ones(2)], [torch.ones(2)])
    for other in (
        [torch.zeros(2)],
        [torch.ones(2, dtype=torch.float64)],
        [torch.ones(2), 1],
        (torch.ones(2),),
        torch.ones(2),
        None,
    ):
        assert not tree.same_data([torch.ones(2)], other)


def test_plain_has_no_named_tuples():
    found = tree.map_plain(lambda leaf: 2 * leaf, {"a": Pair(1, [2, (3,)])})
    assert found == {"a": (2, [4, (6,)])}
    assert type(found["a"]) is tuple
