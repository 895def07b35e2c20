"""The command line with the toy as one more experiment: python tests/toy_cli.py run toy --preset smoke."""

import sys

import toy
from steadygrad.paper.cli import main
from steadygrad.paper.experiments import EXPERIMENTS

if __name__ == "__main__":
    EXPERIMENTS["toy"] = toy.TOY
    sys.exit(main())
