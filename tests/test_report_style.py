"""How the report looks: columns, lines of methods, numbers and durations."""

import math

import pytest
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report import SECTIONS, Table, page, style, text


def test_columns_of_numbers_are_aligned_to_the_right():
    table = Table(
        "t", "", ("name", "paper", "ours", "empty"), (("RBP", "29.25 ± 3.3", "3 of 4", ""), ("BPTT", "24 %", "NaN", ""))
    )
    assert page.right(table) == [False, True, True, False]
    assert page.right(Table("t", "", ("a", "b"), ())) == [False, False]


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


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (text.number(0.123456), "0.1235"),
        (text.number(1.5e-7), "1.5e-07"),
        (text.number(math.nan), "NaN"),
        (text.short(0.12345), "0.123"),
        (text.short(0.00012345), "1.2e-04"),
        (text.short(None), "–"),
        (text.percent(0.995), "99.5 %"),
        (text.percent(None), "–"),
        (text.rough(0.06666), "6.7 %"),
        (text.rough(1.338), "134 %"),
        (text.plural(1, "trial"), "1 trial"),
        (text.plural(2012, "trial"), "2,012 trials"),
        (text.plural(0, "trial"), "no trials"),
        (text.span([2.0, 0.5]), "0.5 to 2"),
        (text.span([0.5]), "0.5"),
        (text.tied("1 % of K = 20 steps"), "1\xa0% of K\xa0=\xa020 steps"),
        (text.unbroken("0 of 6"), "0\xa0of\xa06"),
    ],
)
def test_words(words, shown):
    assert words == shown


def test_cells_of_columns_of_numbers():
    assert all(map(text.is_number, ("12,345", "46.63 ± 8.3", "99 %", "1.5e-07", "3.1 s", "3 of 4", "–", "≥ 2")))
    assert not any(map(text.is_number, ("RBP", "T = 3", "no")))


def test_every_section_of_ours_is_a_builder():
    assert all(callable(builder) for builder in SECTIONS.values())


@pytest.mark.parametrize("count", [0, 1, 120, 121, 2000])
def test_long_curves_are_thinned_and_keep_their_ends(count):
    kept = style.thinned(count)
    assert len(kept) == len(set(kept)) == min(count, style.POINTS)
    assert kept == sorted(kept)
    assert not count or (kept[0], kept[-1]) == (0, count - 1)
