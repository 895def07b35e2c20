"""The page in a real browser: figures and tables are there, nothing is too wide, the console is empty."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass

import pytest
from matplotlib.figure import Figure as Picture

from steadygrad.paper import records
from steadygrad.paper.records import Record
from steadygrad.paper.report import Figure, Part, Section, Table, page, style
from steadygrad.paper.report.verdicts import AT_LENGTH, HOLDS, Verdict

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
]
PHONE = 360
# What a reader would see, told through the console; the page itself has no scripts and forbids them.
PROBE = """<script>addEventListener("load", () => console.log("PROBE" + JSON.stringify({
  window: innerWidth,
  width: document.documentElement.scrollWidth,
  images: [...document.images].map(image => image.naturalWidth),
  tables: [...document.querySelectorAll("table")].map(table => table.offsetHeight > 0 && table.rows.length),
  text: parseFloat(getComputedStyle(document.querySelector("p") || document.body).fontSize),
})))</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome is installed; on Debian: apt install chromium")


@dataclass(frozen=True)
class Visit:
    dom: str
    console: list[str]

    @property
    def probe(self):
        (found,) = (line for line in self.console if line.startswith("PROBE"))
        return json.loads(found.removeprefix("PROBE"))


def visit(path, profile, *options):
    """Open a file in a browser that has never been used, and collect the page and what the console says."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile / 'profile'}", *(options or ("--dump-dom",)), path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return Visit(done.stdout, re.findall(r'CONSOLE[^\]]*\] "(.*)", source: ', done.stderr))


def probed(path, width=None):
    """A copy of the page that reports on itself; inside a frame, since no window of Chromium is narrower than 500 pixels."""
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text())
    copy = path.with_name("probed.html")
    html = html.replace('<details class="fold"', '<details open class="fold"')  # what is folded away has no size
    copy.write_text(html.replace("</body>", PROBE + "</body>"))
    if width is None:
        return copy
    frame = path.with_name("frame.html")
    frame.write_text(f'<!DOCTYPE html><iframe src="{copy.name}" style="border:0;width:{width}px;height:800px"></iframe>')
    return frame


def curves():
    picture = Picture(figsize=(style.WIDTH, 2.5))
    axes = picture.subplots(1, 2)
    for axis in axes:
        for shift, method in enumerate(style.METHODS):
            style.curve(axis, method, range(40), [0.9**k + 0.1 * shift for k in range(40)])
    return picture


def section(found):
    head = ("method", *(f"a long column number {i}" for i in range(9)))
    claim = "A claim of some length about curves. " * 3
    return Section(
        name="toy",
        title="A toy",
        parts=(Part("T1", claim, "0.123", "0.124 " * 9, Verdict(AT_LENGTH, "9 of 99 passes"), Verdict(HOLDS), "A reason. " * 9),),
        exhibits=(
            Figure("toy-t1", "Curves.", "Falling lines.", curves, len(found)),
            Figure("toy-t2", "Curves again.", "Falling lines.", curves, len(found)),
            Table("toy-wide", "A wide table.", head, tuple((m, *("12.34 ± 0.56",) * 9) for m in style.METHODS)),
        ),
        settings=Table("toy-settings", "Settings.", ("setting", "value"), (("a_rather_long_name_of_a_setting" * 2, "1e-3"),)),
        command="steadygrad run toy --preset smoke --out a-folder-with-a-rather-long-name-somewhere/deep/down",
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    evil = "<script>console.error('escaped?')</script><img src=x>"
    machine = {"cpu": "Abacus" * 20, "platform": evil}
    for seed in range(3):
        error = f"Traceback {'long ' * 99}\nValueError: {evil}" if seed == 2 else None
        config = {"seed": seed, "evil": evil}
        records.write(folder / "runs", Record("toy", config, None if error else {"loss": 0.5}, error, {"seconds": 3.0}, machine))
        records.write(folder / "runs", Record("unknown", config, {"loss": 0.5, "evil": evil}, None, {}, machine))
    (folder / "runs" / "toy" / f"{'long' * 30}.json").write_text(evil)
    written = page.write(folder / "runs", folder / "report.html", {"toy": section})
    assert written.problems == []
    return written.page


def test_the_page_in_the_browser(made, tmp_path):
    seen = visit(made, tmp_path)
    assert seen.console == []
    assert seen.dom.count("<img ") == 2
    assert seen.dom.count("<table") == 6  # claims, the wide one, settings twice, the plain one, strangers
    assert "<script" not in seen.dom


@pytest.mark.parametrize("width", [None, PHONE], ids=["desk", "phone"])
def test_figures_and_tables_are_seen_and_nothing_is_too_wide(made, tmp_path, width):
    seen = visit(probed(made, width), tmp_path)
    assert len(seen.console) == 1
    probe = seen.probe
    assert width in (None, probe["window"])
    assert probe["width"] <= probe["window"]
    assert len(probe["images"]) == 2
    assert min(probe["images"]) > 100
    assert len(probe["tables"]) == 6
    assert min(probe["tables"]) >= 2
    assert probe["text"] >= 12


def test_it_prints_with_everything_unfolded(made, tmp_path):
    shut, unfolded = tmp_path / "shut.pdf", tmp_path / "open.pdf"
    visit(made, tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={shut}")
    copy = tmp_path / "open.html"
    copy.write_text(made.read_text().replace("<details", "<details open"))
    visit(copy, tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={unfolded}")
    pages = [len(re.findall(rb"/Type\s*/Page\b", path.read_bytes())) for path in (shut, unfolded)]
    assert pages[0] == pages[1]


def test_it_prints(made, tmp_path):
    paper = tmp_path / "page.pdf"
    assert visit(made, tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}").console == []
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12


@pytest.mark.parametrize(
    ("html", "message"),
    [
        ("<p>x</p><script>console.error('it hurts')</script>", "it hurts"),
        ("<p>x</p><script>nonsense()</script>", "nonsense is not defined"),
        (
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'"><script>console.log(1)</script>',
            "Content Security Policy",
        ),
    ],
    ids=["error", "exception", "forbidden script"],
)
def test_a_page_with_something_in_the_console_would_be_noticed(tmp_path, html, message):
    (tmp_path / "bad.html").write_text(f"<!DOCTYPE html>{html}")
    seen = visit(tmp_path / "bad.html", tmp_path)
    assert any(message in line for line in seen.console)


def test_a_page_that_is_too_wide_or_lacks_a_picture_would_be_noticed(tmp_path):
    (tmp_path / "bad.html").write_text(
        '<!DOCTYPE html><body><p style="width:700px">x<img src="data:image/svg+xml;base64,AAAA"></p></body>'
    )
    probe = visit(probed(tmp_path / "bad.html", PHONE), tmp_path).probe
    assert probe["width"] > probe["window"] == PHONE
    assert probe["images"] == [0]
