"""The rules of the verdicts: six as published, three where the assumptions hold, undecided within noise, and no data."""

import pytest

from steadygrad.paper.report import verdicts
from steadygrad.paper.report.verdicts import Case, Finding, Gap, Length, Outcome, all_of, held, over

YES, NO, NOISE, MISSING = Outcome.YES, Outcome.NO, Outcome.NOISE, Outcome.MISSING
FULL, SHORT = Length(2000, 2000, "epochs"), Length(100, 2000, "epochs")


@pytest.mark.parametrize(
    ("readings", "length", "more", "name"),
    [
        ([YES], FULL, {}, verdicts.AT_LENGTH),
        ([YES], None, {}, verdicts.AT_LENGTH),
        ([YES], SHORT, {}, verdicts.SHORTER),
        ([NO], FULL, {}, verdicts.CONTRADICTED),
        ([NO], SHORT, {}, verdicts.UNTESTED),  # a short run cannot contradict
        ([YES], SHORT, {"longer": NO}, verdicts.UNTESTED),  # longer trials point the other way
        ([YES], SHORT, {"longer": YES}, verdicts.SHORTER),
        ([YES, NO], FULL, {}, verdicts.READING),
        ([YES, NO], SHORT, {}, verdicts.READING),
        ([YES, YES], FULL, {}, verdicts.AT_LENGTH),
        ([NO, NO], FULL, {}, verdicts.CONTRADICTED),
        ([YES, MISSING], FULL, {}, verdicts.AT_LENGTH),
        ([NOISE], FULL, {}, verdicts.UNDECIDED),
        ([NOISE], SHORT, {}, verdicts.UNDECIDED),
        ([YES], FULL, {"premise": False}, verdicts.PREMISE),
        ([NO], FULL, {"premise": False}, verdicts.PREMISE),
        ([NO], SHORT, {"premise": False}, verdicts.UNTESTED),
        ([MISSING], FULL, {}, verdicts.NO_DATA),
        ([MISSING], FULL, {"premise": False}, verdicts.NO_DATA),
        ([], FULL, {}, verdicts.NO_DATA),
    ],
)
def test_as_published(readings, length, more, name):
    found = Finding(tuple(readings), length=length, seeds=3, **more).as_published()
    assert found.name == name
    assert found.name in verdicts.PUBLISHED


def test_length_and_seeds_stand_beside_the_verdict():
    assert Finding(YES, length=SHORT, seeds=10).as_published().rests == "100 of 2,000 epochs, 10 seeds"
    assert Finding(NO, length=FULL, seeds=1).as_published().rests == "2,000 epochs, 1 seed"
    assert Finding(YES, length=None, seeds=0).as_published().rests == ""
    assert Finding(YES, length=None, seeds=(1, 2)).as_published().rests == "1 to 2 seeds"
    assert Finding(YES, length=None, seeds=(2, 2)).as_published().rests == "2 seeds"
    assert Finding(YES, seeds=8).where_assumptions_hold().rests == "8 seeds"


def test_what_was_not_tested_at_length_has_its_trend():
    assert Finding(NO, length=SHORT, seeds=10).as_published().rests == "100 of 2,000 epochs, 10 seeds; trend: against it"
    assert (
        Finding(NO, length=SHORT, seeds=10, longer=YES).as_published().rests.endswith("; against it so far, longer trials for it")
    )
    found = Finding(YES, length=SHORT, seeds=3, longer=NO).as_published()
    assert found.rests == "100 of 2,000 epochs, 3 seeds; for it so far, longer trials against it"
    assert Finding(NO, length=SHORT, seeds=3, premise=False).as_published().rests.endswith("3 seeds; its premise fails so far")


@pytest.mark.parametrize(
    ("outcome", "name"),
    [(YES, verdicts.HOLDS), (NO, verdicts.FAILS), (NOISE, verdicts.UNDECIDED), (MISSING, verdicts.NO_DATA)],
)
def test_where_assumptions_hold(outcome, name):
    assert Finding(outcome, seeds=2).where_assumptions_hold().name == name
    assert name in verdicts.CORRECTED


def test_conditions_together():
    assert all_of([YES, YES]) is YES
    assert all_of([YES, NOISE]) is NOISE
    assert all_of([MISSING, NOISE]) is MISSING
    assert all_of([YES, MISSING, NO]) is NO
    assert all_of([]) is MISSING


def cases(full: str, short: str = "") -> list[Case]:
    """A setting a letter, those that were run in full first: y where the claim holds, n where it does not."""
    made = [Case(letter == "y", FULL, f"full {place}", [1]) for place, letter in enumerate(full)]
    return made + [Case(letter == "y", SHORT, f"short {place}", [2]) for place, letter in enumerate(short)]


@pytest.mark.parametrize(
    ("full", "short", "share", "name"),
    [
        ("yyyy", "", 1.0, verdicts.AT_LENGTH),
        ("y", "yyy", 1.0, verdicts.SHORTER),  # one of four at length does not make the claim one at length
        ("", "yyyy", 1.0, verdicts.SHORTER),
        ("n", "yyy", 1.0, verdicts.CONTRADICTED),  # a counterexample at length is enough
        ("y", "yyn", 1.0, verdicts.UNTESTED),  # a short run cannot contradict
        ("n", "yyy", 0.75, verdicts.SHORTER),  # "generally" bears one of four
        ("n", "yyn", 0.75, verdicts.UNTESTED),
        ("nn", "yy", 0.75, verdicts.CONTRADICTED),  # but not two of them, whatever the others would say
        ("yyy", "n", 0.75, verdicts.AT_LENGTH),  # and three are enough
        ("", "", 1.0, verdicts.NO_DATA),
    ],
)
def test_a_claim_of_four_settings_of_which_some_were_run_in_full(full: str, short: str, share: float, name: str):
    assert over(cases(full, short), 4, share).as_published().name == name


def test_a_claim_of_several_settings_is_as_long_as_the_shortest_and_names_what_was_run_in_full():
    together = over(cases("y", "yyy"), 4)
    assert together.as_published().rests == "100 of 2,000 epochs, 2,000 at full 0, 1 to 2 seeds"
    assert held(together.of) == "4 of 4 settings, in full 1 of 1"
    alone = over(cases("ny", "yy"), 4)
    assert alone.as_published().rests == "2,000 epochs at full 0; full 1, 1 seed"
    assert held(alone.of) == "3 of 4 settings, in full 1 of 2"
    assert over(cases("yyyy"), 4).as_published().rests == "2,000 epochs, 1 seed"
    assert held(cases("", "yn")) == "1 of 2 settings"


def test_differences_within_two_standard_errors_are_noise():
    far, near = Gap([3.0, 4.0, 5.0]), Gap([-1.0, 0.5, 2.0])
    assert (far.mean, str(far)) == (4.0, "+4.0 ± 0.6")
    assert far.above is YES
    assert Gap([-3.0, -4.0, -5.0]).above is NO
    assert near.above is NOISE


def test_too_few_seeds_have_no_standard_error():
    assert Gap([1.0, 2.0]).above is Gap([1.0, 2.0]).level(9.0) is MISSING
    assert str(Gap([-1.0, -2.0])) == "−1.5"
    assert str(Gap([])) == "–"


def test_level_is_a_limit_or_what_cannot_be_told_apart():
    assert Gap([0.8, 0.9, 1.0]).level(1.0) is YES
    assert Gap([-4.0, 0.2, 4.0]).level(1.0) is NOISE  # the noise is larger than what counts as level
    assert Gap([0.0, 1.5, 3.0]).level(1.0) is NOISE
    assert Gap([-1.0, -2.0, -2.4]).level(1.0) is NO
