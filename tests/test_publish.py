"""The tool that puts numbers from records into the report and the docs, and compares them."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from steadygrad.paper.experiments import EXPERIMENTS
from steadygrad.paper.experiments.experiment import Preset, settings
from steadygrad.paper.experiments.hopfield.experiment import HopfieldConfig
from steadygrad.paper.records import Record
from steadygrad.paper.report import Part, Section, Table
from steadygrad.paper.report.verdicts import HOLDS, SHORTER, Verdict

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("publish", ROOT / "tools" / "publish.py")
publish = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(publish)

PART = Part("T1", "It learns", "0.3", "", Verdict(SHORTER, "3 of 9 passes"), Verdict(HOLDS), "Why | not.")
TABLE = Table("toy-times", "Times.", ("method", "s"), (("BPTT", "2\u00a0s"),), "A note.")
TOY = Section("toy", "Toy", (PART,), (TABLE,), Table("toy-settings", "S.", ("setting", "value"), (("rate", "1"),)), "run")
RECORDS = [Record("toy", {}, {}, None, {"seconds": 3.0, "peak_mb": peak}) for peak in (100.0, 1500.0)]


def marked(name, old="old\n"):
    return f"before\n<!-- numbers: {name} -->\n{old}<!-- end -->\nafter\n"


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("table toy-times", "Times.\n\n| method | s |\n| --- | --- |\n| BPTT | 2 s |\n\nA note.\n"),
        ("settings", "| setting | value |\n| --- | --- |\n| rate | 1 |\n"),
    ],
)
def test_numbers_go_between_their_marks_and_nowhere_else(name, inside):
    text = publish.filled(marked(name), TOY, RECORDS)
    assert text == marked(name, inside)
    assert publish.filled(text, TOY, RECORDS) == text


def test_verdicts_have_their_length_and_stay_one_row():
    row = publish.filled(marked("verdicts"), TOY, RECORDS).splitlines()[4]
    assert row == "| **T1** It learns | 0.3 | – | **reproduced in a shorter run** (3 of 9 passes) | **holds** | Why \\| not. |"


def test_effort_counts_what_is_large():
    text = publish.effort(RECORDS)
    assert text.startswith("2 records: 6.0 s over 2 trials")
    assert "at most 1,500 MB, median 800 MB, above 1,400 MB in 1 of 2 trials" in text


def test_what_of_the_deciding_preset_was_not_run_is_named():
    trials = [
        HopfieldConfig(method="bptt"),
        *(
            HopfieldConfig(method=method, steps=K, seed=seed)
            for method in ("tbptt", "cg-rbp")
            for K in (10, 30)
            for seed in (0, 1)
        ),
    ]
    experiment = replace(EXPERIMENTS["hopfield"], presets={"long": Preset(tuple(trials), 1.0, "")})
    done = [Record("hopfield", settings(trial), {}, None, {}) for trial in trials]
    assert publish.left_out(experiment, done) == "All 9 trials of the preset `long` are among these records."
    assert publish.left_out(experiment, done[1:6]).splitlines() == [
        "Of the 9 trials of the preset `long` 5 are among these records. Not run:",
        "",
        "- seed 0: BPTT · CG-RBP (K = 30)",
        "- seed 1: CG-RBP (K = 10, 30)",
    ]


def test_an_unknown_mark_is_refused():
    with pytest.raises(
        SystemExit, match="no numbers 'table toy-other'; choose verdicts, effort, settings, long, table toy-times"
    ):
        publish.filled(marked("table toy-other"), TOY, RECORDS)


def test_pictures_do_not_count():
    one, other = (f'<img src="data:x{i}" width="{i}" height="2" alt="a">'.encode() for i in (1, 2))
    assert publish.without_pictures(one) == publish.without_pictures(other)
    assert publish.without_pictures(b"<p>1</p>") != publish.without_pictures(b"<p>2</p>")


def test_docs_pages_have_no_marks_that_nobody_fills():
    for path in publish.PAGES.values():
        text = path.read_text()
        assert text.count("<!-- numbers: ") == text.count("<!-- end -->") == len(publish.MARK.findall(text)) > 0


def test_the_readme_has_the_matrix_between_its_marks_where_it_has_any():
    text = "a\n<!-- claims -->\nold\n<!-- /claims -->\nb\n"
    made = publish.CLAIMS.sub(lambda found: f"{found[1]}{publish.claims([TOY])}\n{found[2]}", text)
    assert made.startswith(
        "a\n<!-- claims -->\nAs published: 1 reproduced in a shorter run. Where the assumptions hold: 1 holds.\n\n"
    )
    assert (
        "| **T1** It learns | 0.3 | – | ✓ reproduced in a shorter run (3 of 9 passes) | ✓ holds |\n<!-- /claims -->\nb\n" in made
    )
    assert publish.CLAIMS.sub("", "no marks") == "no marks"
