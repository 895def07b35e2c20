"""What the records say on claims M1 to M4 of the paper: a judgement a mode, and the verdict of all together."""

from __future__ import annotations

from collections.abc import Callable

from steadygrad.report.finding import Finding, verdict
from steadygrad.report.hyperopt.costs import PAPER_MEMORY, PAPER_TIME, m3, ways
from steadygrad.report.hyperopt.meta import m1, m2
from steadygrad.report.hyperopt.trajectories import m4
from steadygrad.report.hyperopt.trials import MODES, TITLES, Mode, Sorted
from steadygrad.report.section import Claim


def claims(found: Sorted) -> tuple[Claim, ...]:
    m1_text = (
        "Meta training loss over T and K: (a) smoother as T grows; (b) TBPTT's becomes worse as T grows; (c) Neumann-RBP's is "
        "below RBP's and TBPTT's."
    )
    m2_text = "Training loss of the last meta step: Neumann-RBP generally matches BPTT."
    m3_text = "Cost of a meta step at T = 1000, BPTT's divided by Neumann-RBP's, at K = 10 / 50 / 100."
    m3_paper = f"time {strokes(PAPER_TIME)}, memory {strokes(PAPER_MEMORY)}"
    m4_text = "Paths of the weights at meta steps 20 and 40: in time TBPTT oscillates and Neumann-RBP converges."
    by_way = {way.title: m3(way) for way in ways(found)}
    return (
        claim("M1", m1_text, "“consistently better”; curves only", by_mode(found, m1)),
        claim("M2", m2_text, "curves only", by_mode(found, m2)),
        claim("M3", m3_text, m3_paper, by_way or dict.fromkeys((TITLES[mode] for mode in MODES), NO_TRIALS)),
        claim("M4", m4_text, "t-SNE pictures only", by_mode(found, m4)),
    )


NO_TRIALS = Finding(None, "", "no trials")


def by_mode(found: Sorted, judge: Callable[[Mode], Finding]) -> dict[str, Finding]:
    modes = {mode.name: mode for mode in found.all}
    return {TITLES[name]: judge(modes[name]) if name in modes and modes[name].cells else NO_TRIALS for name in MODES}


def claim(name: str, text: str, paper: str, findings: dict[str, Finding]) -> Claim:
    ours = " ".join(f"{title}: {finding.ours}." for title, finding in findings.items() if finding.ours)
    reasons = " ".join(f"{title}: {finding.why}." for title, finding in findings.items())
    return Claim(name, text, paper, ours, verdict([f.holds for f in findings.values() if f.holds is not None]), reasons)


def strokes(ratios: dict[int, float]) -> str:
    return " / ".join(f"{ratio:.2f}" for ratio in ratios.values())
