"""The tables of docs/experiments/hyperopt.md, from a records folder, as markdown.

python tools/hyperopt_numbers.py results                                  # print them
python tools/hyperopt_numbers.py results docs/experiments/hyperopt.md     # put them between the page's marks
"""

from __future__ import annotations

from marks import arguments, fill, markdown

from steadygrad import records
from steadygrad.report import facts
from steadygrad.report.hyperopt import section
from steadygrad.report.section import Section, Table


def verdicts(made: Section) -> str:
    parts = []
    for claim in made.claims:
        paper = "" if "only" in claim.paper else f" Paper: {claim.paper}."
        lines = "\n".join(f"- {words}" for words in (claim.ours, claim.reason) if words)
        parts.append(f"**{claim.id}: {claim.verdict}.** {claim.text}{paper}\n\n{lines}")
    return "\n\n".join(parts).replace("\u00a0", " ")


def table(made: Section, words: str) -> Table:
    return next(block for block in made.blocks if isinstance(block, Table) and words in block.caption)


def columns(found: Table, names: list[str], rows: list[tuple[str, ...]] | None = None) -> str:
    """These columns of a table; of columns of one name all."""
    places = [i for name in names for i, head in enumerate(found.head) if head == name]
    assert {found.head[i] for i in places} == set(names), f"{found.caption} has the columns {found.head}"
    return markdown([found.head[i] for i in places], [[row[i] for i in places] for row in rows or found.rows])


def errors(made: Section) -> str:
    found = table(made, "Hypergradients at the first")
    return markdown(found.head, found.rows)


def ways(made: Section) -> str:
    """As published only: corrected, all ways are one."""
    found = table(made, "On which data")
    rows = [row for row in found.rows if row[0] == "As published"]
    return columns(found, ["T", "last step on", "cosine", "rel. error", "noise"], rows)


def ratios(made: Section) -> str:
    found = table(made, "cost of one meta step")
    assert len({(row[0], row[2]) for row in found.rows}) == 1, "one mode and T, as the page says"
    return markdown([found.head[1], *found.head[3:]], [(row[1], *row[3:]) for row in found.rows])


def costs(made: Section) -> str:
    """Every method once: those that take no last step of their own are listed for both ways to take it."""
    found = table(made, "Time and memory of every")
    rows = [(row[1] + (", mini-batch" if "mini" in row[0] else ""), *row[2:]) for row in found.rows]
    unrolled = ("BPTT", "TBPTT", "Forward")
    return markdown(found.head[1:], [row for row in rows if "mini-batch" not in row[0] or not row[0].startswith(unrolled)])


def effort(found: list[records.Record]) -> str:
    peak = max(r.measured["peak_mb"] for r in found)
    return (
        f"The numbers on this page come from the {len(found)} records in `results/hyperopt/`: {facts.time(found)}, one to "
        f"three at a time on a two-core machine that others used too. At most {peak:,.0f} MB a process."
    )


def main() -> None:
    folder, page = arguments()
    found = [r for r in records.read(folder, "hyperopt").records if r.done]
    made = section(found)
    fill(
        {
            "effort": effort(found),
            "verdicts": verdicts(made),
            "errors": errors(made),
            "ways": ways(made),
            "ratios": ratios(made),
            "costs": costs(made),
        },
        page,
    )


main()
