"""`python -m steadygrad.cli` is `steadygrad`."""

import sys

from steadygrad.cli.verbs import main

sys.exit(main())
