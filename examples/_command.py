"""The command line of the examples: --small and --picture. Each example is whole without it: copy `main` and `draw`."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from typing import Any


def run(main: Callable[[bool], Any], draw: Callable[[Any, str], None], small: str) -> None:
    """Call main(small) and, where a picture is asked for, draw what it returns; None means that there is nothing to draw."""
    about = inspect.getdoc(inspect.getmodule(main))
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--picture", metavar="PATH", help="save a picture there")
    options.add_argument("--small", action="store_true", help=small)
    chosen = options.parse_args()
    found = main(chosen.small)
    if chosen.picture and found is not None:
        draw(found, chosen.picture)
