"""What `steadygrad` says when it is asked nothing: what to do next."""

from __future__ import annotations

from pathlib import Path

import steadygrad

STEPS = (
    ("steadygrad list", "experiments, presets, time"),
    ("steadygrad run all --preset smoke --out runs", "every experiment in small"),
    ("steadygrad report --runs runs --out report.html", "one page: claims, figures, numbers"),
    ("steadygrad playground", "pages to play with in the browser"),
    ("steadygrad run hopfield --help", "every setting is a flag"),
)
CODE = """    import torch, steadygrad as sg
    solution = sg.steady_state(torch.cos, torch.zeros(3))
    print(solution, sg.diagnose(torch.cos, solution), sep="\\n\\n")"""


def welcome(runs: Path = Path("runs")) -> str:
    """The next steps, the one first that is due: a report where records lie in `runs`, a run where none do."""
    records = sum(1 for _ in runs.glob("*/*.json")) if runs.is_dir() else 0
    due = 2 if records else 1
    found = f"{runs}/ has {records} records, so next is" if records else "There are no records in runs/ yet, so next is"
    width = max(len(command) for command, _ in STEPS)
    lines = [f"  {command:<{width}}   {what}" for command, what in STEPS]
    return "\n".join(
        [
            f"steadygrad {steadygrad.__version__}: gradients at steady states, and the experiments of Liao et al. 2018.",
            "",
            f"{found}: {STEPS[due][0]}",
            "",
            *lines,
            "",
            "As a library:",
            "",
            CODE,
        ]
    )
