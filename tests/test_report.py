"""The page comes from records alone, says what is missing, escapes what it is given and is the same each time."""

import math
import os
import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure as Picture

from steadygrad import records
from steadygrad.records import Record
from steadygrad.report import VERDICTS, Claim, Figure, NoRecordsError, Section, Table, facts, generic, page, style

MACHINE = {
    "cpu": "Abacus 3000",
    "cores": 2,
    "platform": "Linux",
    "steadygrad": "0.1.0",
    "torch": "2.13.0",
    "commit": "0123456789abcdef+",
}
EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


def record(experiment="toy", error=None, **config):
    result = None if error else {"loss": [0.5, 0.25], "final": 0.25 + config.get("seed", 0), "note": "fine"}
    measured = {"seconds": 30.0 + config.get("seed", 0), "started": "2026-11-16T03:00:00+00:00"}
    return Record(experiment, {"method": "bptt", "seed": 0, **config}, result, error, measured, MACHINE)


def drawing():
    picture = Picture()
    style.curve(
        picture.subplots(), "bptt", range(9), [0.5**k for k in range(9)], ([0.4**k for k in range(9)], [0.6**k for k in range(9)])
    )
    return picture


def section(found):
    claims = (
        Claim("T1", "It learns.", "0.3", "0.25", "reproduced", "It does."),
        Claim("T2", "It is fast.", "1 s", "2 s", "not reproduced", "It is not."),
        Claim("T3", "It is green.", "green", "", "no data", "Nobody looked."),
    )
    blocks = (
        "## The losses",
        "A paragraph.",
        Figure("toy-t1", "Loss over steps.", "A falling line.", drawing, len(found)),
        Figure("toy-other", "The same again.", "Another falling line.", drawing, 1),
        Table("Times.", ("method", "ours"), (("BPTT", "2 s"), ("RBP", "3 ± 1 s")), "A note.", "toy-t2-times"),
    )
    settings = Table("Settings.", ("setting", "value"), (("rate", "1e-3"),))
    return Section("toy", "A toy", "About the toy.", claims, blocks, settings, "steadygrad run toy --preset smoke")


class Reader(HTMLParser):
    """Counts the elements, and checks that they are closed in order."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self, html):
        super().__init__()
        self.open, self.found, self.ids, self.links, self.sources = [], {}, [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.found.setdefault(tag, []).append(dict(attributes))
        self.ids += [value for key, value in attributes if key == "id"]
        self.links += [value for key, value in attributes if key == "href"]
        self.sources += [value for key, value in attributes if key == "src"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def fill(folder):
    for seed in range(3):
        records.write(folder, record(seed=seed))
    return folder


@pytest.fixture
def runs(tmp_path):
    return fill(tmp_path / "runs")


def without_figures(found):
    made = section(found)
    return Section(**{**vars(made), "blocks": tuple(block for block in made.blocks if not isinstance(block, Figure))})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page with two figures, made once: drawing is slow."""
    folder = tmp_path_factory.mktemp("report")
    return page.write(fill(folder / "runs"), folder / "out" / "report.html", {"toy": section})


@pytest.fixture(scope="module")
def html(written):
    return written.page.read_text()


def test_the_page(written, html):
    assert written == page.Written(written.page, 3, [], [])
    read = Reader(html)
    assert len(read.found["img"]) == 2
    assert [image["alt"] for image in read.found["img"]] == ["A falling line.", "Another falling line."]
    assert len(read.found["table"]) == 3  # claims, times, settings
    for part in ("About the toy.", "<h3>The losses</h3>", "<p>A paragraph.</p>", "A note.", "steadygrad run toy --preset smoke"):
        assert part in html
    assert "Abacus 3000, 2 cores, Linux" in html
    assert "steadygrad 0.1.0, commit 0123456789 with local changes, torch 2.13.0" in html
    assert "1 min 33 s over 3 trials (median 31 s, longest 32 s), started 2026-11-16" in html.replace("\u00a0", " ")
    assert (
        "1 experiment, 3 trials with a result, none failed. 3 claims of the paper: 1 reproduced, 1 not reproduced, 1 no data."
        in html
    )
    assert html.index('id="claims"') < html.index('id="toy"')


def test_claims_link_to_what_shows_them(html):
    assert '<a href="#figure-1">Figure 1</a>' in html  # T1: toy-t1
    assert '<a href="#table-1">Table 1</a>' in html  # T2: toy-t2-times
    assert '<a href="#toy">A toy</a></td>' in html  # T3: nothing shows it
    read = Reader(html)
    assert len(read.ids) == len(set(read.ids))
    assert {link[1:] for link in read.links if link.startswith("#")} <= set(read.ids)


def test_the_page_needs_no_other_file(html):
    read = Reader(html)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in read.sources)
    assert "script" not in read.found
    assert "link" not in read.found
    assert {link for link in read.links if not link.startswith("#")} == {
        f"figures/{name}.{kind}" for name in ("toy-t1", "toy-other") for kind in ("svg", "pdf")
    }


def test_figures_are_files_too(written):
    folder = written.page.parent / "figures"
    assert sorted(os.listdir(folder)) == ["toy-other.pdf", "toy-other.svg", "toy-t1.pdf", "toy-t1.svg"]
    assert (folder / "toy-t1.svg").read_text().startswith("<?xml")
    assert (folder / "toy-t1.pdf").read_bytes().startswith(b"%PDF")


def test_the_same_records_give_the_same_bytes(written, runs, tmp_path):
    again = page.write(runs, tmp_path / "again" / "report.html", {"toy": section})
    first, second = ({path.name: path.read_bytes() for path in made.page.parent.rglob("*.*")} for made in (written, again))
    assert len(first) == 5
    assert first == second


def test_nothing_unfinished_is_left_and_the_old_page_is_replaced(runs, tmp_path):
    out = tmp_path / "report.html"
    out.write_text("old")
    page.write(runs, out, {"toy": without_figures})
    assert out.read_text() != "old"
    assert not [path for path in tmp_path.rglob("*.part")]


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    out = tmp_path / "report.html"
    out.write_text("old")
    monkeypatch.setattr(page.os, "replace", lambda *names: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        page.put(out, b"new")
    assert os.listdir(tmp_path) == ["report.html"]
    assert out.read_text() == "old"


def test_failed_trials_are_shown_with_their_error(runs, tmp_path):
    records.write(runs, record(seed=7, error="Traceback:\n  somewhere\nValueError: too hot"))
    html = page.write(runs, tmp_path / "report.html", {"toy": without_figures}).page.read_text()
    assert "1 of 4 trials failed; the figures and tables are without it" in html
    assert "ValueError: too hot</h4>" in html
    assert "Traceback:\n  somewhere" in html
    assert "3 trials with a result, 1 failed." in html


def test_strangers_are_listed(runs, tmp_path):
    (runs / "toy" / "half.json").write_text('{"schema": 1')
    (runs / "stray.txt").write_text("")
    written = page.write(runs, tmp_path / "report.html")
    assert len(written.strangers) == 2
    assert written.records == 3
    html = written.page.read_text()
    assert "<code>toy/half.json</code>" in html
    assert "<code>stray.txt</code></td><td>lies outside the folder of an experiment" in html


@pytest.mark.parametrize("sections", [{}, {"toy": without_figures}], ids=["generic", "own"])
def test_what_records_say_is_escaped(runs, tmp_path, sections):
    found = record(error=EVIL, evil=EVIL, seed=9)
    records.write(runs, found)
    records.write(
        runs,
        Record("toy", {EVIL: EVIL, "seed": 10}, {EVIL: EVIL}, None, {"seconds": 1, "started": EVIL}, {"cpu": EVIL, EVIL: EVIL}),
    )
    (runs / "toy" / "<script>.json").write_text("{}")
    html = page.write(runs, tmp_path / "report.html", sections).page.read_text()
    read = Reader(html)
    assert "script" not in read.found
    assert not any("onerror" in image for image in read.found.get("img", []))
    assert "&lt;script&gt;alert(&#39;x&#39;)" in html


def test_a_folder_name_cannot_break_out_of_an_attribute(runs, tmp_path):
    name = 'x" onload="alert(1)'
    (runs / name).mkdir()
    evil = record(experiment=name)
    (runs / name / f"{evil.trial}.json").write_text(records.dumps(evil))
    written = page.write(runs, tmp_path / "report.html")
    assert written.records == 4
    read = Reader(written.page.read_text())
    assert not any("onload" in attributes for group in read.found.values() for attributes in group)
    assert name in read.ids


def test_without_records_there_is_no_page(tmp_path):
    out = tmp_path / "report.html"
    with pytest.raises(NoRecordsError, match=r"no records in .*nowhere; make some with `steadygrad run"):
        page.write(tmp_path / "nowhere", out)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "stray.txt").write_text("")
    with pytest.raises(NoRecordsError, match="only 1 file of other kinds"):
        page.write(tmp_path / "runs", out)
    assert not out.exists()


def test_an_experiment_without_a_section_gets_a_table(runs, tmp_path):
    html = page.write(runs, tmp_path / "report.html", {}).page.read_text()
    assert "No experiment on this page tests a claim" in html
    made = generic.section(records.read(runs).records)
    (table,) = made.blocks
    assert table.head == ("seed", "final", "note")
    assert table.rows == (("0", "0.25", "fine"), ("1", "1.25", "fine"), ("2", "2.25", "fine"))
    assert "loss" in table.note
    assert made.settings.rows == (("method", "bptt"),)


def test_the_plain_table_says_what_it_leaves_out():
    many = [record(seed=seed) for seed in range(generic.MOST_ROWS + 5)]
    (table,) = generic.section(many).blocks
    assert len(table.rows) == generic.MOST_ROWS
    assert f"The first {generic.MOST_ROWS} of {generic.MOST_ROWS + 5} trials." in table.note


def test_the_plain_table_bears_results_of_all_shapes():
    found = [
        Record("toy", {"seed": 0}, {"a": [1, 2]}, None),
        Record("toy", {"seed": 1, "x": None}, {"a": 3, "b": math.nan, "c": {}}, None),
        Record("toy", {"x": "y"}, {"seed": True}, None),
    ]
    (table,) = generic.section(found).blocks
    assert table.head == ("seed", "x", "a", "b", "seed (result)")
    assert ("0", "–", "(list of 2)", "–", "–") in table.rows
    assert ("1", "–", "3", "NaN", "–") in table.rows
    assert "c" in table.note


def test_only_failures_make_a_page_too(tmp_path):
    records.write(tmp_path / "runs", record(error="ValueError: no"))
    html = page.write(tmp_path / "runs", tmp_path / "report.html").page.read_text()
    assert "No trial has a result." in html
    assert "1 of 1 trials failed" in html


def test_a_section_that_fails_is_replaced_and_reported(runs, tmp_path):
    def broken(found):
        raise KeyError("energy")

    records.write(runs, record(experiment="other"))
    written = page.write(runs, tmp_path / "report.html", {"toy": broken, "other": generic.section})
    assert written.problems == ["The section of toy could not be made from its records: KeyError: 'energy'"]
    html = written.page.read_text()
    assert "The section of toy could not be made from its records: KeyError: &#39;energy&#39;" in html
    assert html.count("The trials and their results.") == 2


def test_a_figure_that_fails_leaves_the_others(runs, tmp_path):
    def broken():
        raise ZeroDivisionError("no trials")

    def with_broken(found):
        figures = (Figure("toy-bad", "Bad.", "bad", broken, 0), Figure("toy-good", "Good.", "good", Picture, 0))
        return Section(**{**vars(section(found)), "blocks": figures})

    written = page.write(runs, tmp_path / "report.html", {"toy": with_broken})
    assert written.problems == ["The figure toy-bad could not be drawn: ZeroDivisionError: no trials"]
    html = written.page.read_text()
    assert [image["alt"] for image in Reader(html).found["img"]] == ["good"]
    assert written.problems[0] in html
    assert not (tmp_path / "figures" / "toy-bad.svg").exists()


def test_two_figures_of_one_name_are_refused(runs, tmp_path):
    def twice(found):
        return Section(**{**vars(section(found)), "blocks": (Figure("toy-one", "One.", "one", Picture, 0),) * 2})

    with pytest.raises(ValueError, match="two figures are named 'toy-one'"):
        page.write(runs, tmp_path / "report.html", {"toy": twice})


def test_two_machines_are_told_apart():
    found = [record(seed=0), record(seed=1), Record("toy", {"seed": 2}, {}, None)]
    assert [(m.trials, m.hardware) for m in facts.machines(found)] == [
        ("2 trials", "Abacus 3000, 2 cores, Linux"),
        ("1 trial", "not recorded"),
    ]
    assert facts.time(found[2:]) == "not recorded"


@pytest.mark.parametrize("seconds", ["soon", None, True, math.nan, [1]])
def test_odd_times_are_left_out(seconds):
    assert facts.time([Record("toy", {}, {}, None, {"seconds": seconds, "started": 5})]) == "not recorded"


def test_wrong_parts_are_refused():
    with pytest.raises(ValueError, match="the verdict on H1 is 'maybe'; choose one of reproduced, "):
        Claim("H1", "", "", "", "maybe", "")
    with pytest.raises(ValueError, match="small letters, digits"):
        Figure("../up", "", "", drawing, 0)
    with pytest.raises(ValueError, match="has 1 cells for 2 columns"):
        Table("Times", ("a", "b"), (("1",),))


def test_a_verdict_does_not_hang_on_its_colour(runs, tmp_path):
    def judged(found):
        claims = tuple(Claim(f"T{i}", "t", "p", "o", verdict, "r") for i, verdict in enumerate(VERDICTS))
        return Section(**{**vars(without_figures(found)), "claims": claims})

    html = page.write(runs, tmp_path / "report.html", {"toy": judged}).page.read_text()
    marks = re.findall(r'class="verdict [a-z-]+"><span aria-hidden="true">(.)</span> ([a-z ]+)</span>', html)
    assert [verdict for _, verdict in marks] == list(VERDICTS)
    assert len({mark for mark, _ in marks}) == len(VERDICTS)
