"""Records as markdown tables, one a benchmark, for docs/speed.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import BENCHMARKS, compared, error_tables, store
from benchmarks.markdown import markdown, number
from benchmarks.store import Record

NOT_YET = "*Not measured yet: `make bench`.*"


def parts(records: dict[str, Record]) -> dict[str, str]:
    """The text of every mark of the page."""
    found = {"machine": machine(records)}
    for name in BENCHMARKS:
        rows = store.of(name, records)
        found[name] = TABLES.get(name, raced)(rows) + picture(name) if rows else NOT_YET
    return found


def picture(name: str) -> str:
    """The figures that figures.py draws of a benchmark, beside the page."""
    return "".join(f"\n\n![{caption}]({path}.svg)" for path, caption in CAPTIONS.get(name, {}).items())


CAPTIONS: dict[str, dict[str, str]] = {
    "hindsight": {
        "speed/hindsight": "Seconds of auto over those of the best single solver, a point a family of problems",
        "speed/radius": "Milliseconds of one adjoint solve over the spectral radius of J, a line a solver, F cheap and F dear",
    },
    "memory": {
        "speed/memory": "Peak of tensors over T and over K, in states: flat for implicit methods, growing for BPTT and TBPTT"
    },
    "gradient_error": {
        "speed/error-memory": "Error of the gradient over peak memory, all methods, at a steady state and not at one",
        "speed/error-seconds": "Error of the gradient over milliseconds, all methods, at a steady state and not at one",
    },
    "growth": {"speed/growth": "Milliseconds of one gradient over the size of the state, its rows, T and K, on logarithmic axes"},
    "wrong_gradient": {
        "pictures/wrong-gradient": "Error of a gradient over the steps of its adjoint solver: torchdeq's, ours, and our estimate"
    },
}
"""Figures below the table of a benchmark, as paths from the page, with their alternative text."""


def machine(records: dict[str, Record]) -> str:
    """Where, when and with what everything was measured; all of it where the records differ."""
    done = [record for record in records.values() if "figures" in record]
    if not done:
        return NOT_YET
    places = sorted({f"{r['machine']['processor']}, {r['machine']['cores']} cores" for r in done})
    versions: dict[str, set[str]] = {}
    for record in done:
        for package, version in record["versions"].items():
            versions.setdefault(package, set()).add(version)
    packages = ", ".join(f"{package} {' and '.join(sorted(found))}" for package, found in versions.items())
    days = sorted({record["when"][:10] for record in done})
    load = max(record["machine"]["load"] for record in done)
    efforts = {record["effort"] for record in done}
    hasty = "" if efforts == {"full"} else f" **Effort: {', '.join(sorted(efforts))}: not for the record.**"
    failed = [key for key, record in records.items() if "error" in record]
    missing = f" Failed: {', '.join(failed)}." if failed else ""
    minutes = sum(record["seconds"] for record in done) / 60
    return f"{'; '.join(places)}; {days[0]} to {days[-1]}, {minutes:.0f} minutes, load up to {load}. {packages}.{hasty}{missing}"


def timed(times: dict[str, Any] | None) -> str:
    """Milliseconds and the ratio to the reference."""
    return "–" if times is None else f"{number(times['ms'])} ms, ×{number(times['ratio'])}"


def names_of(rows: list[Record], key: str) -> list[str]:
    """All names under a key of the figures, in the order in which they come up."""
    return list(dict.fromkeys(name for row in rows for name in row["figures"].get(key, {})))


def raced(rows: list[Record]) -> str:
    """Any benchmark whose rows are races: milliseconds and ratio of each way to the first."""
    ways = names_of(rows, "times")
    has_goal = any(row["figures"].get("goal") for row in rows)
    lines = [
        [row["row"], *(timed(row["figures"]["times"].get(way)) for way in ways), *([goal(row)] if has_goal else [])]
        for row in rows
    ]
    return markdown(["", *ways, *(["aim"] if has_goal else [])], lines) + notes(rows)


def goal(row: Record) -> str:
    aim = row["figures"].get("goal")
    return f"×{aim}" if aim else "–"


def notes(rows: list[Record]) -> str:
    """What rows have to remark, each remark once."""
    said = dict.fromkeys(note for row in rows for note in row["figures"].get("notes", []))
    failed = dict.fromkeys(f"{who}: {why}" for row in rows for who, why in row["figures"].get("failed", {}).items())
    return "".join(f"\n\n*{note}*" for note in [*said, *failed])


def default_call(rows: list[Record]) -> str:
    """Milliseconds, ratio, and counts of F and of products where they are known."""
    ways = names_of(rows, "times")

    def cell(row: Record, way: str) -> str:
        counts = row["figures"]["counts"].get(way)
        text = timed(row["figures"]["times"].get(way))
        return f"{text} ({counts[0]}, {counts[1]})" if counts else text

    lines = [
        [row["row"], *(cell(row, way) for way in ways), goal(row), number(max(row["figures"]["errors"].values()))] for row in rows
    ]
    return markdown(["state, ρ(W)", *ways, "aim", "largest error"], lines)


def hindsight(rows: list[Record]) -> str:
    """The best single solver, and auto over it; where auto fails and another does not, that is said."""

    def line(row: Record) -> list[str]:
        f = row["figures"]
        best = f["best"]
        over = ", ".join(f"×{number(ratio)}" + (" told" if "told" in name else "") for name, ratio in f["auto_over_best"].items())
        auto = f["outcomes"]["Auto"]
        status = auto["status"] if auto["succeeds"] or not best else f"**{auto['status']}**"
        others = sorted(
            (name for name in f["outcomes"] if name != best and not name.startswith("Auto") and f["outcomes"][name]["succeeds"]),
            key=lambda name: f["times"][name]["ms"] if name in f["times"] else float("inf"),
        )
        fails = [name for name, found in f["outcomes"].items() if not found["succeeds"] and not name.startswith("Auto")]
        return [
            row["row"],
            f"{best}, {number(f['times'][best]['ms'])} ms" if best else "none succeeds",
            over or "–",
            f"×{f['goal']}",
            f"{status}, {auto['products']} products, error {number(auto['error'])}"
            + ("" if f["same_bits"] else ", **bits differ**"),
            ", ".join(others[:3]) or "–",
            ", ".join(fails) or "–",
        ]

    head = ["F and family", "best single solver", "auto over it", "aim", "auto", "next best", "fail"]
    return markdown(head, map(line, rows)) + notes(rows)


def batches(rows: list[Record]) -> str:
    """Two tables: problems that are alike, and problems of which a few are slow."""
    unequal = [row for row in rows if row["row"].startswith("unequal")]
    alike = [row for row in rows if row not in unequal]
    return "\n\n".join(raced(part) for part in (alike, unequal) if part)


def training(rows: list[Record]) -> str:
    """Two tables: trainings to a loss, and seconds a step."""
    trained = [row for row in rows if "seconds" in row["figures"]]
    lines = []
    for row in trained:
        f = row["figures"]
        for way in f["seconds"]:
            peak = f"{f['peak'][way] / 2**20:.1f} MB"
            lines.append([row["row"], way, f"{f['seconds'][way]} s", str(f["steps"][way] or "not reached"), peak])
    text = markdown(["network", "gradient", "seconds to the loss", "epochs", "peak of a step"], lines) if lines else ""
    steps = [row for row in rows if "times" in row["figures"]]
    return text + ("\n\n" + raced(steps) if steps else "")


def memory(rows: list[Record]) -> str:
    """Two tables: peaks over the counts, and the states that each solver holds."""
    over = [row for row in rows if "T" in row["figures"]]
    held = [row for row in rows if "states" in row["figures"]]
    lines = []
    for row in over:
        f = row["figures"]
        spreads = [f"×{number(f[axis]['spread'])}" for axis in ("T", "K")]
        ends = [number(f[axis]["tensors"][-1] / f["state"]) for axis in ("T", "K")]
        aim = f"×{f['goal']}" if f["goal"] else "grows"
        lines.append([row["row"].removeprefix("steps: "), *spreads, *ends, aim])
    head = ["method", "largest over smallest peak, T", "K", "states at the largest T", "K", "aim"]
    states = [[solver, *(number(row["figures"]["states"].get(solver)) for row in held)] for solver in names_of(held, "states")]
    found = [markdown(head, lines)] if lines else []
    if held:
        found.append(markdown(["states at the peak", *(row["row"].removeprefix("states: ") for row in held)], states))
    return "\n\n".join(found)


def time_spent(rows: list[Record]) -> str:
    """A column a call, a row a part of it; the rest is what the parts leave of the call."""

    def rest(row: Record) -> str:
        f = row["figures"]
        return number(max(f["call"] - sum(f["parts"].values()), 0.0))

    lines = [[part, *(number(row["figures"]["parts"].get(part)) for row in rows)] for part in names_of(rows, "parts")]
    lines.append(["autograd, the gradient of W", *map(rest, rows)])
    lines += [[f"**{key}**", *(number(row["figures"][key]) for row in rows)] for key in ("call", "by hand")]
    return markdown(["µs", *(row["row"] for row in rows)], lines)


def growth(rows: list[Record]) -> str:
    ways = names_of(rows, "exponents")
    lines = [
        [
            row["row"],
            f"{row['figures']['values'][0]}…{row['figures']['values'][-1]}",
            *(number(row["figures"]["exponents"][way]) for way in ways),
        ]
        for row in rows
    ]
    return markdown(["cost ~ this to the power", "over", *ways], lines)


def denormals(rows: list[Record]) -> str:
    """The race, and what this processor takes for a product with denormal numbers over one with ordinary ones."""
    penalty = rows[0]["figures"]["penalty"]
    finding = "so that the guard saves the terms themselves and nothing else" if penalty < 2 else "which the guard avoids"
    found = f"A product with denormal numbers takes {number(penalty)} times one with ordinary ones on this processor, {finding}."
    return f"{raced(rows)}\n\n{found}"


def warm_start(rows: list[Record]) -> str:
    lines = []
    for row in rows:
        f = row["figures"]
        pairs = [f"{number(f[way][0])} evaluations, {number(f[way][1])} products" for way in ("cold", "warm")]
        lines.append([row["row"], *pairs, f"×{number(f['ratio'])}"])
    return markdown(["", "cold, a step", "warm, a step", "warm over cold"], lines)


TABLES: dict[str, Callable[[list[Record]], str]] = {
    "default_call": default_call,
    "hindsight": hindsight,
    "batches": batches,
    "time_spent": time_spent,
    "training": training,
    "memory": memory,
    "growth": growth,
    "honesty": compared.honesty,
    "gradient_error": error_tables.gradient_error,
    "wrong_gradient": error_tables.wrong_gradient,
    "denormals": denormals,
    "warm_start": warm_start,
}
"""Benchmarks with a table of their own; the others are plain races."""
