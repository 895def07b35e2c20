"""What the exact gradient of the steps that were taken would cost: for advice where a state is not steady."""

from __future__ import annotations

from steadygrad.gradient.schedule import Plan, logarithm, square_root


def exact_instead(steps: int) -> str:
    """The exact ways to differentiate so many steps, with their costs here, in states and evaluations of F.

    >>> exact_instead(400).split(": ")[1].split(",")[0]
    'gradient=BPTT(memory="sqrt") keeps 28 states and evaluates F 800 times'
    """
    least, most = logarithm(steps, steps), square_root(steps)
    return _WORDS.format(steps, most.states, evaluations(most, steps), least.states, evaluations(least, steps))


def evaluations(plan: Plan, steps: int) -> int:
    """Evaluations of F for a run of known length and its gradient: all steps, those taken again, and all with their graphs."""
    return 2 * steps + plan.steps_again(steps) - max(plan.stops())


_WORDS = (
    'Exact for these {} steps, steady or not, with forward=Picard(...): gradient=BPTT(memory="sqrt") keeps {} states and '
    'evaluates F {} times, BPTT(memory="log") keeps {} and evaluates it {} times.'
)
