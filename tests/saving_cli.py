"""The command line whose trials save after every step instead of every minute, and tell which steps they do.

python tests/saving_cli.py run hopfield --preset smoke. With the variable STEPS_DIARY every step is a line "step process" of that
file; with WAIT_FOR_THE_KILL a trial does not end: whoever kills it can never come too late.
"""

import os
import signal
import sys
from dataclasses import replace
from functools import partial

from steadygrad.paper.cli import main
from steadygrad.paper.experiments import EXPERIMENTS


def saving(run, config, report, checkpoint):
    """Run a trial of a real experiment that saves whenever it could."""
    checkpoint.every = 0.0

    def note(done, total, text):
        with open(os.environ["STEPS_DIARY"], "a") as file:
            file.write(f"{done} {os.getpid()}\n")
        report(done, total, text)
        while done == total and "WAIT_FOR_THE_KILL" in os.environ:
            signal.pause()

    return run(config, note, checkpoint)


if __name__ == "__main__":
    for name, experiment in EXPERIMENTS.items():
        if experiment.resumes:
            EXPERIMENTS[name] = replace(experiment, run=partial(saving, experiment.run))
    sys.exit(main())
