"""The tables of docs/experiments/citation.md, from a records folder, as markdown.

python tools/citation_numbers.py results                                  # print them
python tools/citation_numbers.py results docs/experiments/citation.md     # put them between the page's marks
"""

from __future__ import annotations

from marks import arguments, fill, markdown

from steadygrad import records
from steadygrad.report import facts
from steadygrad.report.citation import section
from steadygrad.report.citation.claims import g1, g2, g3
from steadygrad.report.citation.measures import costs, diagnosed
from steadygrad.report.citation.tables import PAPER, tested, validated
from steadygrad.report.citation.trials import NAMES, Group, label, sort


def published(groups: list[Group]) -> str:
    """Accuracy beside the paper's and the diagnosis, in one table."""
    head = ["graph", "method", "paper", "test", "validation", "seeds", "last step", "paper's scaling", "ρ(J)", "adjoint residual"]
    rows = []
    for group in groups:
        for method in group.methods():
            trials = group.of(method)
            cells = diagnosed(trials) if method in group.gradients() else ("–",) * 7
            accuracies = (PAPER[group.graph].get(method, "–"), tested(trials), validated(trials), str(len(trials)))
            rows.append((NAMES[group.graph], label(method), *accuracies, cells[0], cells[1], cells[2], cells[5]))
    return markdown(head, rows)


def longer(groups: list[Group]) -> str:
    rows = []
    for group in groups:
        for t in sorted(group.others, key=lambda trial: trial.method):
            losses = [f"{t.result['training_loss'][place]:.2f}" for place in (0, -1)]
            row = (label(t.method), str(t.seed), str(t.config["epochs"]), *losses, str(t.result["best_epoch"]))
            rows.append((NAMES[group.graph], *row, tested([t]), validated([t])))
    return markdown(["graph", "method", "seed", "epochs", "first loss", "last loss", "best epoch", "test", "validation"], rows)


def corrected(groups: list[Group]) -> str:
    methods = list(dict.fromkeys(method for group in groups for method in group.methods()))
    rows = [(label(m), *(f(g.of(m)) for g in groups for f in (tested, validated))) for m in methods]
    heads = [f"{NAMES[g.graph]}, {what}" for g in groups for what in (f"test ({len(g.of('auto'))} seeds)", "validation")]
    return markdown(["method", *heads], rows)


def cost(groups: list[Group]) -> str:
    rows = []
    for group in groups:
        for method in group.methods():
            if method != "baseline":
                c = costs(group.of(method))
                rows.append((group.title, label(method), c[0], c[1], c[2], c[3], c[5]))
    return markdown(
        ["graph and mode", "method", "F an epoch", "products", "ms an epoch", "MB an epoch", "peak MB of the process"], rows
    )


def verdicts(found: list[records.Record]) -> str:
    judges = {"G1": g1, "G2": g2, "G3": g3}
    groups = [group for group in sort(found).groups if group.graph in PAPER]
    parts = []
    for claim in section(found).claims:
        lines = [f"**{claim.id}: {claim.verdict}.** {claim.text} Paper: {claim.paper.rstrip('.')}.", ""]
        for group in groups:
            if claim.id != "G2" or group.graph == "cora":
                one = judges[claim.id](group)
                lines.append(f"- {group.title}: {'; '.join(filter(None, (one.ours, one.why)))}.")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def effort(found: list[records.Record]) -> str:
    peak = max(r.measured["peak_mb"] for r in found)
    return (
        f"The numbers on this page come from the {len(found)} records in `results/citation/`: {facts.time(found)}, two at a time "
        f"on a two-core machine that others used too. At most {peak:,.0f} MB a process (BPTT on Pubmed as published), most "
        "others 550 to 750, mostly libraries."
    )


def main() -> None:
    folder, page = arguments()
    found = [r for r in records.read(folder, "citation").records if r.done]
    groups = sort(found).groups
    of_mode = {mode: [g for g in groups if g.mode == mode and g.graph in PAPER] for mode in ("as-published", "corrected")}
    parts = {
        "effort": effort(found),
        "verdicts": verdicts(found),
        "as-published": published(of_mode["as-published"]),
        "longer": longer(of_mode["as-published"]),
        "corrected": corrected(of_mode["corrected"]),
        "cost": cost([*of_mode["as-published"], *of_mode["corrected"]]),
    }
    fill(parts, page)


main()
