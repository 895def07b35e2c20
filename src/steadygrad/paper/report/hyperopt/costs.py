"""What a meta step costs: CPU time and memory of each method over T and K, by the ways to take the last step."""

from __future__ import annotations

from dataclasses import dataclass

from steadygrad.paper.report.hyperopt.hypergradients import compared_at
from steadygrad.paper.report.hyperopt.trials import UNROLLED, Mode, Sorted, last_of, training_steps, way_order
from steadygrad.paper.report.trial import Group, Trial, median, ratio
from steadygrad.paper.report.verdicts import Length

PAPER_T = 1000
Cost = list[float | None]
"""CPU seconds of a meta step, and the memory that the process takes above its libraries and data, in MB."""


@dataclass(frozen=True)
class Way(Group):
    """The costs of a mode by one way to take the last step, at the T at which BPTT and Neumann-RBP can be compared."""

    last: str = ""
    T: int = 0
    of_mode: Mode | None = None

    @property
    def counts(self) -> list[int]:
        return sorted({trial.config["steps"] for trial in self.of("neumann-rbp") if training_steps(trial) == self.T})

    @property
    def lengths(self) -> list[int]:
        return sorted(set(map(training_steps, self.trials)))

    def at(self, method: str, K: int | None, T: int | None = None) -> list[Trial]:
        return [trial for trial in self.of(method, K) if training_steps(trial) == (T or self.T)]

    def cost(self, method: str, K: int | None, T: int | None = None, whose: str = "") -> Cost:
        """Medians over trials; whose="bptt_": BPTT's, measured in turns with the method's."""
        found = self.at(method, K, T)
        return [median(trial.measured.get(whose + key) for trial in found) for key in ("cpu_seconds", "memory_mb")]

    def ratios(self, method: str, K: int | None) -> Cost:
        """BPTT's cost divided by the method's."""
        return list(map(ratio, self.cost(method, K, whose="bptt_"), self.cost(method, K)))

    def cosine(self, method: str, K: int | None) -> float | None:
        """To BPTT's hypergradient: of the trial itself, or of those that compare hypergradients at the same T and K."""
        own = median(trial.result.get("cosine") for trial in self.at(method, K))
        return own if own is not None or not self.of_mode else compared_at(self.of_mode, (self.T, K or 0, method), self.last)


def ways(found: Sorted) -> list[Way]:
    """At T = 1000, or at the largest T at which Neumann-RBP was measured."""
    made: list[Way] = []
    for mode in found.all:
        ours = [trial for trial in mode.costs if trial.method == "neumann-rbp"]
        for last in sorted(set(map(last_of, ours)), key=way_order):
            trials = tuple(trial for trial in mode.costs if trial.method in UNROLLED or last_of(trial) == last)
            lengths = {training_steps(trial) for trial in ours if last_of(trial) == last}
            T = PAPER_T if PAPER_T in lengths else max(lengths)
            length = Length(T, PAPER_T, "training steps")
            made.append(Way(mode.costs[0].config, trials, mode.title, length, last=last, T=T, of_mode=mode))
    return made
