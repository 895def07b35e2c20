"""How the report looks: columns, lines of methods, numbers and durations."""

import math

import pytest
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report import SECTIONS, Table, page, style, text


def test_columns_of_numbers_are_aligned_to_the_right():
    table = Table(
        "t", "", ("name", "paper", "ours", "empty"), (("RBP", "29.25 ± 3.3", "3 of 4", ""), ("BPTT", "24 %", "NaN", ""))
    )
    assert page.Item(table, "table", 1).right == [False, True, True, False]
    assert page.Item(Table("t", "", ("a", "b"), ()), "table", 1).right == [False, False]


def test_methods_are_told_apart_without_colour():
    looks = [(look.line, look.marker) for look in style.METHODS.values()]
    assert len(set(looks)) == len(looks)
    assert len({look.marker for look in style.METHODS.values()}) == len(looks)
    assert len({look.colour for look in style.METHODS.values()}) == len(looks)


def test_unknown_methods_are_drawn_too():
    assert style.look("mine").label == "mine"
    assert style.ordered(["mine", "auto", "bptt", "auto"]) == ["bptt", "auto", "mine"]
    with style.use():
        axes = Picture().subplots()
        style.curve(axes, "mine", [1, 2], [1, 2])
        style.curve(axes, "rbp-uniform", [], [])
    assert len(axes.lines) == 2


def test_the_style_leaves_others_alone():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with style.use():
        style.curve(Picture().subplots(), "rbp-uniform", [1, 2], [1, 2])
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-0.5, "-0.5"),
        (3.0, "3"),
        (123456.0, "123,456"),
        (1e9, "1e+09"),
        (-math.inf, "−∞"),
        (None, "–"),
        (False, "no"),
        ("<b>", "<b>"),
    ],
)
def test_numbers(value, shown):
    assert text.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0.0 s"), (59.99, "1 min"), (3599.9, "1 h"), (7200, "2 h"), (90061, "25 h 1 min"), (59.4, "59 s")]
)
def test_durations(seconds, shown):
    assert text.duration(seconds) == shown


def test_every_section_of_ours_is_a_builder():
    assert all(callable(builder) for builder in SECTIONS.values())


@pytest.mark.parametrize("count", [0, 1, 120, 121, 2000])
def test_long_curves_are_thinned_and_keep_their_ends(count):
    kept = style.thinned(count)
    assert len(kept) == len(set(kept)) == min(count, style.POINTS)
    assert kept == sorted(kept)
    assert not count or (kept[0], kept[-1]) == (0, count - 1)
