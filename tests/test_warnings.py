"""Warnings: one a kind and line of the user's code, with a count, by Python's own filters; all of them in the record."""

import pickle
import subprocess
import sys
import threading
import warnings

import pytest
import torch

import steadygrad as sg
from steadygrad.failure import past_warnings, report_failure


def fail(count, others="of 32"):
    report_failure(f"{count} {others} problems: the search ended MAX_STEPS: residual about 1e-0{count % 7}.", "warn")


def shown_by(action, run):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        run()
    return [str(warning.message) for warning in shown]


def test_texts_that_differ_in_numbers_are_shown_at_growing_intervals():
    def run():
        for count in range(1, 251):
            report_failure(f"{count} of 32 problems failed.", "warn")

    shown = shown_by("default", run)
    assert len(shown) == 3
    assert shown[0].startswith("1 of 32 problems")
    assert shown[1].startswith("10 of 32 problems")
    assert "(Warning 10 of this kind from this line.)" in shown[1]
    assert "(Warning 100 of this kind" in shown[2]


def test_other_kinds_and_other_lines_are_shown():
    def run():
        for _ in range(3):
            fail(7)
            report_failure("7 of 32 problems: something else.", "warn")

    def two_lines():
        for _ in range(3):
            report_failure("7 of 32 problems: something else.", "warn")
            report_failure("7 of 32 problems: something else.", "warn")

    assert len(shown_by("default", run)) == 2
    assert len(shown_by("default", two_lines)) == 2


def test_solves_in_a_loop():
    def run():
        for steps in range(3, 9):
            sg.steady_state(lambda h: 0.99 * h + 1, torch.zeros(steps, 1), forward=sg.Picard(max_steps=3), batch_dims=1)

    assert len(shown_by("default", run)) == 1


@pytest.mark.parametrize(("action", "count"), [("always", 5), ("ignore", 0), ("default", 1), ("once", 1), ("module", 1)])
def test_filters_act_as_on_any_warning(action, count):
    assert len(shown_by(action, lambda: [fail(i) for i in range(1, 6)])) == count


def test_filters_by_message_see_the_whole_text():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=r"7 of 32.*MAX_STEPS")
        fail(7)
        with pytest.raises(sg.SteadyStateWarning, match="8 of 32"):
            fail(8)


def test_errors_on_request():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            with pytest.raises(sg.SteadyStateWarning, match="7 of 32"):
                fail(7)


def test_every_context_sees_its_warning():
    for _ in range(3):
        with pytest.warns(sg.SteadyStateWarning, match="7 of 32"):
            fail(7)


def test_every_context_counts_from_one():
    """So that the warnings of a trial do not depend on what its process ran before."""
    texts = [shown_by("always", lambda: [fail(7), fail(7)]) for _ in range(2)]
    assert texts[0] == texts[1]
    assert "(Warning" not in texts[0][0]
    assert "(Warning 2 of this kind" in texts[0][1]


def test_the_record_has_all_of_them():
    def run():
        for count in range(1, 26):
            fail(count, "of the recorded")

    shown_by("ignore", run)
    (entry,) = [entry for entry in past_warnings() if "of the recorded" in entry.message]
    assert (entry.count, entry.message.split()[0]) == (25, "25")
    assert entry.filename == __file__


def test_threads_lose_no_count():
    def run():
        threads = [threading.Thread(target=lambda: [fail(i, "of the threaded") for i in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    shown_by("ignore", run)
    (entry,) = [entry for entry in past_warnings() if "of the threaded" in entry.message]
    assert entry.count == 800


def test_a_warning_can_be_pickled():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        fail(7)
    again = pickle.loads(pickle.dumps(shown[0].message))
    assert isinstance(again, sg.SteadyStateWarning)
    assert str(again) == str(shown[0].message)


def test_a_training_loop_prints_few_lines(tmp_path):
    """Under the filters of a fresh interpreter, at the user's own line."""
    script = tmp_path / "training.py"
    script.write_text(
        "import torch, steadygrad as sg\n"
        "for steps in range(3, 53):\n"
        "    sg.steady_state(lambda h: 0.99 * h + 1, torch.zeros(steps, 1), forward=sg.Picard(max_steps=3), batch_dims=1)\n"
    )
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stderr
    assert printed.count("SteadyStateWarning: ") == 2
    assert "training.py:3: SteadyStateWarning: 3 of 3 problems" in printed
