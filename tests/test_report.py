"""The page comes from records alone, says what is missing, escapes what it is given and is the same each time."""

import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import ModuleType

import pytest
from jinja2 import ChoiceLoader, DictLoader
from matplotlib.figure import Figure as Picture

from steadygrad.paper import records
from steadygrad.paper.records import Record
from steadygrad.paper.report import Figure, NoRecordsError, Part, Section, Table, facts, generic, page, style, verdicts, writing
from steadygrad.paper.report.verdicts import Finding, Verdict

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


SHORT, HOLDS, NOTHING = Verdict(verdicts.SHORTER, "3 of 9 passes, 2 seeds"), Verdict(verdicts.HOLDS), Verdict(verdicts.NO_DATA)


def section(found):
    parts = (
        Part("T1a", "It learns.", "0.3", "0.25", SHORT, HOLDS, "It does."),
        Part("T1b", "It is fast.", "1 s", "2 s", Verdict(verdicts.CONTRADICTED), NOTHING, "It is not."),
        Part("T3", "It is green.", "green", "", NOTHING, Verdict(verdicts.NOT_APPLICABLE), "Nobody looked."),
    )
    exhibits = (
        Figure("toy-t1", "Loss over steps.", "A falling line.", drawing, len(found)),
        Figure("toy-other", "The same again.", "Another falling line.", drawing, 1),
        Table("toy-t2-times", "Times.", ("method", "ours"), (("BPTT", "2 s"), ("RBP", "3 ± 1 s")), "A note."),
    )
    settings = Table("toy-settings", "Settings.", ("setting", "value"), (("rate", "1e-3"),))
    return Section("toy", "A toy", parts, exhibits, settings, "steadygrad run toy --preset smoke")


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
    return replace(made, exhibits=tuple(exhibit for exhibit in made.exhibits if not isinstance(exhibit, Figure)))


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
    for part in ("It learns.", "Nobody looked.", "A note.", "steadygrad run toy --preset smoke"):
        assert part in html
    assert "Abacus 3000, 2 cores, Linux" in html
    assert "steadygrad 0.1.0, commit 0123456789 with local changes, torch 2.13.0" in html
    assert "1 min 33 s over 3 trials (median 31 s, longest 32 s), started 2026-11-16" in html.replace("\u00a0", " ")
    assert (
        "1 experiment, 3 trials with a result, none failed. 3 parts of 2 claims. As published: 1 reproduced in a shorter run, 1 "
        "contradicted at length, 1 no data. Where the assumptions hold: 1 holds, 1 not applicable, 1 no data."
    ) in " ".join(html.split())
    assert html.index('id="claims"') < html.index('id="toy"')


FOLDED = """{% from "fold.html.jinja" import fold %}
<p>Prose about {{ found }}.</p>
{% call(s) part("T1", findings, "It learns <b>well</b>", "0.3", "It does.") %}in {{ s }} of 3{% endcall %}
{% call fold("toy-t1", "T1: losses") %}
{% call figure("t1", drawing, records=3, alt="A falling line.") %}Loss & more.{% endcall %}
{% call figure("none", drawing, records=0, alt="Nothing.") %}Nobody sees it.{% endcall %}
{% endcall %}
{% call table("times", "method | s", "Times.", "A note.") %}
{% for method in ("bptt", "a < b") %}
{{ method | label }} | {{ 2 / 3 }}

{% endfor %}
{% endcall %}
{{ table("empty", "method | s", "Nothing.") }}"""


@pytest.fixture
def folded(monkeypatch):
    """A toy's section that is written by a template."""
    made = writing.templates()
    monkeypatch.setattr(
        made, "loader", ChoiceLoader([DictLoader({"toy/intro.html.jinja": "", "toy/toy.html.jinja": FOLDED}), made.loader])
    )
    claim = ModuleType("toy")
    claim.drawing, claim.findings = drawing, (Finding(verdicts.Outcome.YES, 2, 3), Finding())
    settings = Table("toy-settings", "Settings.", ("setting", "value"), ())
    return lambda found: writing.Writer("toy", "<b>toys</b>").write("A toy", (claim,), settings)


def test_a_template_states_parts_and_exhibits_where_they_belong(runs, tmp_path, folded):
    made = folded([])
    (part,) = made.parts
    assert (part.text, part.ours, part.published.name) == ("It learns <b>well</b>", "in 2 of 3", verdicts.AT_LENGTH)
    figure, table = made.exhibits  # without records or rows there is none
    assert (figure.caption, figure.records) == ("Loss & more.", 3)
    assert table.rows == (("BPTT", "0.6666666666666666"), ("a < b", "0.6666666666666666"))
    html = page.write(runs, tmp_path / "report.html", {"toy": folded}).page.read_text()
    assert html.count('<a href="#toy-t1">') == 1
    assert "Prose about &lt;b&gt;toys&lt;/b&gt;." in html
    assert "Loss &amp; more." in html
    read = Reader(html)
    assert len(read.ids) == len(set(read.ids))
    assert {link[1:] for link in read.links if link.startswith("#")} <= set(read.ids)
    inside = html[html.index('id="toy-t1"') : html.index("</details>", html.index('id="toy-t1"'))]
    assert inside.count("<img") == 1


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


def test_a_page_that_cannot_be_written_leaves_the_old_one(runs, tmp_path, monkeypatch):
    out = tmp_path / "out" / "report.html"
    out.parent.mkdir()
    out.write_text("old")
    monkeypatch.setattr("steadygrad.files.os.replace", lambda *names: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        page.write(runs, out, {"toy": without_figures})
    assert os.listdir(out.parent) == ["report.html"]
    assert out.read_text() == "old"


def test_a_page_among_the_records_is_no_stranger(runs):
    page.write(runs, runs / "report.html", {"toy": section})
    assert page.write(runs, runs / "report.html", {"toy": section}).strangers == []


def test_failed_trials_are_shown_with_their_error(runs, tmp_path):
    records.write(runs, record(seed=7, error="Traceback:\n  somewhere\nValueError: too hot"))
    html = page.write(runs, tmp_path / "report.html", {"toy": without_figures}).page.read_text()
    assert "1 of 4 trials failed; the figures and tables are without it" in html
    assert "ValueError: too hot</h4>" in html
    assert "Traceback:\n  somewhere" in html
    assert "3 trials with a result, 1 failed." in " ".join(html.split())


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
    (table,) = made.exhibits
    assert table.head == ("seed", "final", "note")
    assert table.rows == (("0", "0.25", "fine"), ("1", "1.25", "fine"), ("2", "2.25", "fine"))
    assert made.settings.rows == (("method", "bptt"),)


def test_the_plain_table_bears_results_of_all_shapes():
    found = [
        Record("toy", {"seed": 0}, {"a": [1, 2]}, None),
        Record("toy", {"seed": 1, "x": None}, {"a": 3, "b": math.nan, "c": {}}, None),
        Record("toy", {"x": "y"}, {"seed": True}, None),
    ]
    (table,) = generic.section(found).exhibits
    assert table.head == ("seed", "x", "a", "b", "seed")
    assert ("0", "–", "(list of 2)", "–", "–") in table.rows
    assert ("1", "–", "3", "NaN", "–") in table.rows


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
        return replace(section(found), exhibits=figures)

    written = page.write(runs, tmp_path / "report.html", {"toy": with_broken})
    assert written.problems == ["The figure toy-bad could not be drawn: ZeroDivisionError: no trials"]
    html = written.page.read_text()
    assert [image["alt"] for image in Reader(html).found["img"]] == ["good"]
    assert written.problems[0] in html
    assert not (tmp_path / "figures" / "toy-bad.svg").exists()


def test_two_figures_of_one_name_are_refused(runs, tmp_path):
    def twice(found):
        return replace(section(found), exhibits=(Figure("toy-one", "One.", "one", Picture, 0),) * 2)

    with pytest.raises(ValueError, match="two figures are named 'toy-one'"):
        page.write(runs, tmp_path / "report.html", {"toy": twice})


def test_two_machines_are_told_apart():
    found = [record(seed=0), record(seed=1), Record("toy", {"seed": 2}, {}, None)]
    (count, machine), nobody = facts.machines(found)
    assert (count, nobody) == ("2 trials", ("1 trial", "not recorded"))
    assert machine.startswith("Abacus 3000, 2 cores, Linux, steadygrad 0.1.0, commit 0123456789 with local changes")
    assert facts.time(found[2:]) == "not recorded"


@pytest.mark.parametrize("seconds", ["soon", None, True, math.nan, [1]])
def test_odd_times_are_left_out(seconds):
    assert facts.time([Record("toy", {}, {}, None, {"seconds": seconds, "started": 5})]) == "not recorded"


def test_wrong_parts_are_refused():
    with pytest.raises(ValueError, match="the verdict on H1 is 'holds'; choose one of reproduced at "):
        Part("H1", "", "", "", HOLDS, HOLDS, "")
    with pytest.raises(ValueError, match="small letters, digits"):
        Figure("../up", "", "", drawing, 0)
    with pytest.raises(ValueError, match="has 1 cells for 2 columns"):
        Table("times", "Times", ("a", "b"), (("1",),))


def test_a_verdict_does_not_hang_on_its_colour_and_has_its_length_below(runs, tmp_path):
    def judged(found):
        names = zip(verdicts.PUBLISHED, (*verdicts.CORRECTED, *[verdicts.HOLDS] * 3), strict=True)
        parts = tuple(Part(f"T{i}", "t", "p", "o", Verdict(a, "9 seeds"), Verdict(b), "r") for i, (a, b) in enumerate(names))
        return replace(without_figures(found), parts=parts)

    html = page.write(runs, tmp_path / "report.html", {"toy": judged}).page.read_text()
    found = re.findall(r'class="verdict ([a-z]+)"><span aria-hidden="true">(.)</span> ([^<]+)</span>', html)
    marks = {name.replace("&#39;", "'"): (mark, kind) for kind, mark, name in found}
    assert set(marks) == {*verdicts.PUBLISHED, *verdicts.CORRECTED}
    assert len(set(marks.values())) == 4
    assert marks[verdicts.AT_LENGTH] == ("✓", "good")
    assert marks[verdicts.CONTRADICTED] == marks[verdicts.FAILS] == ("✗", "bad")
    assert html.count('<span class="rests">9\u00a0seeds</span>') + html.count('<span class="rests">9 seeds</span>') == 8
