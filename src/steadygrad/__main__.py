"""`python -m steadygrad` is `steadygrad`."""

import sys

from steadygrad.paper.cli.verbs import main

sys.exit(main())
