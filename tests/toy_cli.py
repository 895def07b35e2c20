"""The command line with the toy as one more experiment: python tests/toy_cli.py run toy --preset smoke."""

import sys

import toy
from steadygrad.cli import main
from steadygrad.experiments import EXPERIMENTS

if __name__ == "__main__":
    EXPERIMENTS["toy"] = toy.TOY
    sys.exit(main())
