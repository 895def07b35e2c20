"""The tables and figures of docs/speed.md, from the results of make bench.

python tools/speed_numbers.py benchmarks/results.json                          # print the tables
python tools/speed_numbers.py benchmarks/results.json docs/speed.md            # put them between the page's marks, draw figures
python tools/speed_numbers.py benchmarks/results.json docs/speed.md --check    # only compare; fails if the page differs
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are no part of the package

from benchmarks import figures, store, tables
from marks import fill, filled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page does not show these results")
    parser.add_argument("--figures", type=Path, help="folder of the figures (default: speed/ beside the page)")
    options = parser.parse_args()
    records = store.read(options.results)
    parts = tables.parts(records)
    if options.check:
        if options.page is None:
            parser.error("--check needs a page to compare with.")
        same = filled(options.page, parts) == options.page.read_text()
        print(f"{options.page} {'shows' if same else 'does NOT show'} {options.results}")
        return not same
    fill(parts, options.page)
    if options.page is not None:
        for path in figures.draw(records, options.figures or options.page.parent / "speed"):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
