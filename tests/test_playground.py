"""The playground in a real browser: it works offline, in light and dark, and answers nobody but its own pages."""

import re
import shutil
import socket
import threading
import time

import pytest
import torch

from steadygrad.paper.playground import methods, retrieval, updates
from steadygrad.paper.playground.guard import ELSEWHERE, OwnPagesOnly

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]


def test_every_digit_is_retrieved_from_half_of_its_pixels():
    for digit in range(10):
        found = retrieval.retrieve(retrieval.damaged(retrieval.stored(digit), 0.5, seed=0), steps=40)
        assert found.nearest == digit
        assert found.residual[-1] < 1e-4
        assert all(later <= earlier + 1e-3 for earlier, later in zip(found.energy[1:], found.energy[2:], strict=False))


def test_a_drawing_becomes_pixels_of_the_memory():
    opaque = torch.full((280, 280, 3), 255, dtype=torch.uint8)
    opaque[20:40, 40:240] = 0
    seen = retrieval.of_drawing(opaque.numpy())
    assert seen[1].sum() >= 10
    assert seen[6:].sum() == 0
    assert retrieval.of_drawing(torch.full((280, 280, 4), 255, dtype=torch.uint8).numpy()) is None
    assert retrieval.of_drawing(None) is None


def test_methods_part_where_the_radius_passes_one():
    below, above = methods.compare(0.7, 0.0, 20), methods.compare(1.4, 0.0, 20)
    assert below.radius == pytest.approx(0.7)
    assert above.radius == pytest.approx(1.4)
    assert below.errors["Neumann-RBP"][-1] < 1e-3 < 1 < above.errors["Neumann-RBP"][-1]
    assert max(found.errors[name][-1] for found in (below, above) for name in ("GMRES", "LSQR", "CG-RBP")) < 1e-8
    assert above.certificate.status.name == "DIVERGED"
    assert 0.1 < below.certificate.error_estimate / below.true_error < 10


@pytest.mark.parametrize(
    "kind, word",
    {"a cycle": "cycle", "a slow map": "on its way", "a detached path": "not that of F", "a rotation": "hold"}.items(),
)
def test_verdicts(kind, word):
    assert word in updates.examine(kind, updates.KINDS[kind].strength[3], 100).verdict


def test_numbers_from_outside_are_brought_within_bounds():
    assert len(retrieval.retrieve(retrieval.stored(1), 10**9).residual) == 100
    assert methods.compare(1e9, -5, 10**9).radius == pytest.approx(2.0)
    with pytest.raises(ValueError, match="unknown update"):
        updates.examine("__import__('os')", 1.0, 1)


def test_tags_that_load_from_elsewhere_are_taken_out():
    page = b'<script src="https://cdn.example/x.js" async></script><link rel="stylesheet" href="https://fonts.example/a.css"><p>'
    assert ELSEWHERE.sub(b"", page) == b"<p>"
    assert ELSEWHERE.sub(b"", b'<script src="/own.js"></script>') == b'<script src="/own.js"></script>'


def scope(kind="http", path="/", **headers):
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in {"host": "127.0.0.1:7", **headers}.items()]
    return {"type": kind, "path": path, "headers": pairs}


def test_guard_refuses_what_other_sites_send():
    guard = OwnPagesOnly(None, 7)
    assert not guard.refused(scope())
    assert not guard.refused(scope(origin="http://localhost:7", host="localhost:7"))
    assert not guard.refused(scope(sec_fetch_site="cross-site", sec_fetch_mode="navigate"))  # a link to the start page
    for strange in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8"},
        {"host": "evil.example"},
        {"host": "evil.example:7"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "path": "/gradio_api/queue/join"},
    ):
        assert guard.refused(scope(**strange)), strange
        assert guard.refused(scope(kind="websocket", **strange)), strange


@pytest.fixture(scope="module")
def address():
    pytest.importorskip("gradio", reason="the playground needs gradio: pip install 'steadygrad[playground]'")
    import uvicorn

    from steadygrad.paper.playground.app import application

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(application(port), host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server has stopped at its start"
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


gradio_warns = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@gradio_warns
def test_other_origins_are_refused_by_the_server(address):
    import httpx

    page = httpx.get(address)
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert not re.search(r"<(script|link)[^>]*(src|href)=.https?://(?!127)", page.text)
    join = {"data": [], "fn_index": 0, "session_hash": "x"}
    evil = {"Origin": "https://evil.example"}
    assert httpx.post(f"{address}/gradio_api/queue/join", json=join, headers=evil).status_code == 403
    assert httpx.get(address, headers=evil).status_code == 403
    assert httpx.get(address, headers={"Host": "evil.example"}).status_code == 403
    assert httpx.options(f"{address}/gradio_api/queue/join", headers=evil).status_code == 403


@gradio_warns
@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome is installed; on Debian: apt install chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_way_through_all_tabs(address, scheme):
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright: pip install playwright")
    with playwright.sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=BROWSER, args=FLAGS)
        page = browser.new_page(viewport={"width": 1200, "height": 950}, color_scheme=scheme)
        page.set_default_timeout(120_000)  # a machine with other work to do loads the page in more than half a minute
        asked, said = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.goto(address)
        page.locator("#retrieve").click()
        page.locator("#retrieved").get_by_text("set pixels were left").wait_for()
        page.get_by_role("tab", name="Methods").click()
        page.locator("#compare").click()
        page.locator("#certificate").get_by_text("Residual").wait_for()
        page.get_by_role("tab", name="Diagnosis").click()
        page.locator("#diagnose").click()
        page.wait_for_function("document.querySelector('#diagnosis textarea').value.includes('Verdict')")
        assert page.locator("#eigenvalues img").evaluate("image => image.naturalWidth") > 100
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).every(c => c < 80)")
        assert dark == (scheme == "dark")
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
        assert said == []
        browser.close()
