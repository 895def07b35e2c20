"""The tables and figures of docs/speed.md and the comparison in README.md, from the results of make bench.

python tools/speed_numbers.py benchmarks/results.json                          # print the tables
python tools/speed_numbers.py benchmarks/results.json docs/speed.md            # put them between the page's marks, draw figures
python tools/speed_numbers.py benchmarks/results.json docs/speed.md --check    # only compare; fails if the page differs
... --readme README.md     # the comparison too, between <!-- compared --> and <!-- /compared -->, where the file has these marks
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are no part of the package

from benchmarks import compared, store, tables
from marks import fill, filled

COMPARED = re.compile(r"(<!-- compared -->\n).*?(<!-- /compared -->)", re.S)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("page", type=Path, nargs="?")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page does not show these results")
    parser.add_argument("--readme", type=Path, help="a file for the comparison with other libraries")
    options = parser.parse_args(arguments)
    records = store.read(options.results)
    parts = tables.parts(records)
    if options.check:
        if options.page is None:
            parser.error("--check needs a page to compare with.")
        texts = {options.page: filled(options.page, parts)} | comparison(options.readme, records)
        for path, text in texts.items():
            print(f"{path} {'shows' if text == path.read_text() else 'does NOT show'} {options.results}")
        return any(text != path.read_text() for path, text in texts.items())
    fill(parts, options.page)
    for path, text in comparison(options.readme, records).items():
        path.write_text(text)
    if options.page is not None:
        from benchmarks import figures  # needs torch and matplotlib, which a comparison does not

        for path in figures.draw(records, options.page.parent / "speed", options.page.parent / "pictures"):
            print(path)
    return 0


def comparison(page: Path | None, records: dict[str, store.Record]) -> dict[Path, str]:
    """The README with the comparison between its marks; nothing where there is no such file, or it has no such marks."""
    if page is None:
        return {}
    text = page.read_text()
    if not COMPARED.search(text):
        print(f"{page} has no marks <!-- compared --> and <!-- /compared -->; its comparison is not from the records")
        return {}
    return {page: COMPARED.sub(lambda marks: f"{marks[1]}{compared.readme(records)}\n{marks[2]}", text)}


if __name__ == "__main__":
    sys.exit(main())
