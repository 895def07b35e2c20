"""Make results/report.html, two figures, and the numbers of docs pages and README from the committed records; or compare them.

python tools/publish.py            # write them
python tools/publish.py --check    # only compare; exit code 1 and a list where something differs. `make check` does this.

A page's numbers stand between marks, <!-- numbers: NAME --> and <!-- end -->, where NAME is `verdicts`, `effort`, `settings`,
`long` or `table` and the name of one of the report's. README.md has the matrix of claims between <!-- claims --> and
<!-- /claims -->, where it has these marks. Pictures are not compared, since fonts differ between machines.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from steadygrad.files import write_atomically
from steadygrad.paper import records
from steadygrad.paper.experiments import EXPERIMENTS
from steadygrad.paper.experiments.experiment import Experiment
from steadygrad.paper.report import SECTIONS, Figure, Section, Table, facts, page
from steadygrad.paper.report.page import Drawn, draw
from steadygrad.paper.report.style import look
from steadygrad.paper.report.trial import WHOLE
from steadygrad.paper.report.verdicts import CORRECTED, PUBLISHED, Verdict, mark

ROOT = Path(__file__).resolve().parents[1]
RESULTS, REPORT = ROOT / "results", ROOT / "results" / "report.html"
PAGES = {name: ROOT / "docs" / "experiments" / f"{name}.md" for name in SECTIONS}
README = ROOT / "README.md"
PICTURES = ("hopfield-h1", "theory-p")
"""The figures that the README shows, as docs/figures/<name>.svg."""
MARK = re.compile(r"(<!-- numbers: (.+?) -->\n)(.*?)(<!-- end -->)", re.S)
CLAIMS = re.compile(r"(<!-- claims -->\n).*?(<!-- /claims -->)", re.S)
NOTHING = Drawn(b"", b"", 0, 0)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("\u00a0", " ").replace("|", "\\|") for cell in line) + " |" for line in lines)


def tabular(table: Table) -> str:
    note = f"\n\n{table.note}" if table.note else ""
    return f"{table.caption}\n\n{markdown(table.head, table.rows)}{note}".replace("\u00a0", " ")


def verdicts(sections: Sequence[Section]) -> str:
    """The matrix."""
    rows = [
        (f"**{part.id}** {part.text}", part.paper, part.ours or "–", worded(part.published), worded(part.corrected), part.why)
        for section in sections
        for part in section.parts
    ]
    return markdown(("part of a claim", "paper", "ours", "as published", "where the assumptions hold", "why"), rows)


def claims(sections: Sequence[Section]) -> str:
    """The matrix for a reader in a hurry: what was found, and a sentence of counts above it."""
    parts = [part for section in sections for part in section.parts]
    published = facts.tally([part.published.name for part in parts], PUBLISHED)
    corrected = facts.tally([part.corrected.name for part in parts], CORRECTED)
    rows = [
        (f"**{part.id}** {part.text}", part.paper, part.ours or "–", marked(part.published), marked(part.corrected))
        for part in parts
    ]
    matrix = markdown(("part of a claim", "paper", "ours", "as published", "where the assumptions hold"), rows)
    return f"As published: {published}. Where the assumptions hold: {corrected}.\n\n{matrix}"


def marked(verdict: Verdict) -> str:
    return f"{mark(verdict.name)} {verdict.name}" + (f" ({verdict.rests})" if verdict.rests else "")


def worded(verdict: Verdict) -> str:
    return f"**{verdict.name}**" + (f" ({verdict.rests})" if verdict.rests else "")


def effort(found: Sequence[records.Record]) -> str:
    peaks = [record.measured["peak_mb"] for record in found if record.measured.get("peak_mb")]
    above = sum(peak > 1400 for peak in peaks)
    return (
        f"{len(found)} records: {facts.time(found)}. Peak memory of a process: at most {max(peaks):,.0f} MB, median "
        f"{statistics.median(peaks):,.0f} MB, above 1,400 MB in {above} of {len(peaks)} trials; libraries are most of it, and "
        "what earlier trials left in the same process."
    )


APART = ("task", "graph", "rate", "seed")
"""Settings by which the trials that were not run are told apart, besides method and K."""


def left_out(experiment: Experiment, found: Sequence[records.Record]) -> str:
    """Which trials of the preset `long`, the one that decides the claims, have no record."""
    asked, known = experiment.presets["long"].trials, {record.trial for record in found}
    missing = [trial for trial in asked if experiment.trial(trial) not in known]
    if not missing:
        return f"All {len(asked)} trials of the preset `long` are among these records."
    fields = {field.name for field in dataclasses.fields(experiment.config)}
    varied = {name for name in fields if len({getattr(trial, name) for trial in asked}) > 1}
    groups: dict[str, dict[str, set[int]]] = {}
    for trial in missing:
        place = ", ".join(f"{name} {getattr(trial, name)}" for name in APART if name in varied)
        counts = groups.setdefault(place, {}).setdefault(look(trial.method).label, set())
        if "steps" in varied and trial.method not in WHOLE:
            counts.add(trial.steps)
    lines = [f"- {place}: {' · '.join(with_counts(*one) for one in methods.items())}" for place, methods in groups.items()]
    done = len(asked) - len(missing)
    return "\n".join([f"Of the {len(asked)} trials of the preset `long` {done} are among these records. Not run:", "", *lines])


def with_counts(method: str, counts: set[int]) -> str:
    return f"{method} (K = {', '.join(map(str, sorted(counts)))})" if counts else method


def filled(text: str, section: Section, found: Sequence[records.Record]) -> str:
    """The page with its numbers put between its marks."""
    tables = {exhibit.name: exhibit for exhibit in section.exhibits if isinstance(exhibit, Table)}

    def part(name: str) -> str:
        if name == "verdicts":
            return verdicts([section])
        if name == "effort":
            return effort(found)
        if name == "long":
            return left_out(EXPERIMENTS[section.name], found)
        if name == "settings":
            return markdown(section.settings.head, section.settings.rows)
        kind, _, table = name.partition(" ")
        if kind != "table" or table not in tables:
            known = ", ".join(f"table {each}" for each in tables)
            raise SystemExit(f"there are no numbers {name!r}; choose verdicts, effort, settings, long, {known}.")
        return tabular(tables[table])

    return MARK.sub(lambda mark: f"{mark[1]}{part(mark[2])}\n{mark[4]}", text)


def texts() -> dict[Path, str]:
    """Every page as it should be."""
    made: dict[Path, str] = {}
    sections: list[Section] = []
    for name, path in PAGES.items():
        found = [record for record in records.read(RESULTS, name).records if record.done]
        sections.append(SECTIONS[name](found))
        made[path] = filled(path.read_text(), sections[-1], found)
    made[README] = CLAIMS.sub(lambda found: f"{found[1]}{claims(sections)}\n{found[2]}", README.read_text())
    return made


def without_pictures(html: bytes) -> str:
    return re.sub(r'src="data:[^"]*" width="\d+" height="\d+"', "", html.decode())


def differing() -> list[str]:
    """What is not as the records make it."""
    lacking = [path for path in (REPORT, *PAGES.values()) if not path.exists()]
    if lacking:
        return [f"{path} is missing" for path in lacking]
    html = page.make(RESULTS, files=False, drawing=lambda figure: NOTHING)[0]
    wrong = [] if without_pictures(html) == without_pictures(REPORT.read_bytes()) else [f"{REPORT} is not what the records make"]
    return wrong + [f"{path} is not what the records make" for path, text in texts().items() if path.read_text() != text]


def publish() -> None:
    written = page.write(RESULTS, REPORT, files=False)
    if written.problems:
        raise SystemExit("\n".join(written.problems))
    for path, text in texts().items():
        if path.read_text() != text:
            write_atomically(path, text)
    folder = ROOT / "docs" / "figures"
    folder.mkdir(exist_ok=True)
    for name in PICTURES:
        found = SECTIONS[name.partition("-")[0]](records.read(RESULTS, name.partition("-")[0]).records)
        figure = next(exhibit for exhibit in found.exhibits if isinstance(exhibit, Figure) and exhibit.name == name)
        write_atomically(folder / f"{name}.svg", draw(figure).svg)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    if not parser.parse_args().check:
        publish()
        return 0
    wrong = differing()
    print("\n".join([*wrong, "run: python tools/publish.py"]) if wrong else "report and docs are what the records make")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
