"""The pages, in Gradio. What comes from a page is a number, a choice from a list or a drawing; nothing is run as code."""

# Gradio is an extra, and has no types that strict checking could use.
# pyright: reportMissingImports=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import os
import threading
from typing import Any

import torch

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported
import gradio
from fastapi import FastAPI
from matplotlib.figure import Figure

from steadygrad.paper.playground import pictures, retrieval, updates
from steadygrad.paper.playground.guard import Application, OwnPagesOnly
from steadygrad.paper.playground.methods import compare

SYSTEM_FONTS = ("system-ui", "sans-serif")
FIXED_FONTS = ("ui-monospace", "monospace")
HIDDEN: dict[str, Any] = {"api_visibility": "private", "show_progress": "minimal"}
FIRST = "a contraction"


def recall(source: str, digit: int, drawing: Any, share: float, seed: float, steps: float) -> tuple[Figure, str]:
    """The tab of the memory: a figure of the way, and what came of it."""
    image = retrieval.stored(int(digit)) if source == "pick" else retrieval.of_drawing((drawing or {}).get("composite"))
    if image is None:
        raise gradio.Error("There is nothing to retrieve from: draw a digit first, or pick one.", print_exception=False)
    damaged = retrieval.damaged(image, share, int(seed))
    found = retrieval.retrieve(damaged, int(steps))
    at_rest = "It is at rest." if found.residual[-1] < 1e-4 else "It still moves: give it more steps."
    words = (
        f"**{int(damaged.sum())} of {int(image.sum())} set pixels were left.** After {len(found.residual)} steps the network "
        f"shows the **{found.nearest}** that it has stored, with {found.wrong:.1%} of the pixels different. {at_rest}"
    )
    return pictures.of_retrieval(damaged, found), words


def contrast(radius: float, skew: float, K: float) -> tuple[Figure, str]:
    """The tab of the methods: error against K, and the certificate's words at the K that was chosen."""
    found = compare(radius, skew, int(K))
    certificate = found.certificate
    words = (
        f"**Neumann-RBP, K = {int(K)}: `{certificate.status.name}`.** Residual {certificate.residual:.1e}, estimated error "
        f"{certificate.error_estimate:.1e}; the gradient is really off by {found.true_error:.1e}.\n\n{certificate.advice}"
    )
    return pictures.of_comparison(found, int(K)), words


def examine(kind: str, strength: float, steps: float) -> tuple[str, Figure]:
    """The tab of the diagnosis: its text, and the eigenvalues."""
    found = updates.examine(kind, float(strength), int(steps))
    return str(found), pictures.of_diagnosis(found)


def slider_of(kind: str) -> Any:
    name, least, most, first = updates.KINDS[kind].strength
    label = f"{name}, of {updates.KINDS[kind].about}"
    return gradio.Slider(least, most, value=first, step=(most - least) / 200, label=label)


def memory_tab() -> None:
    gradio.Markdown("Ten digits are stored in a Hopfield network. Damage one, or draw your own, and watch what it makes of it.")
    with gradio.Row():
        with gradio.Column(scale=1):
            source = gradio.Radio([("pick a digit", "pick"), ("draw one", "draw")], value="pick", label="Image", elem_id="source")
            digit = gradio.Slider(0, 9, value=3, step=1, label="Digit", elem_id="digit")
            drawing = gradio.Sketchpad(
                type="numpy", label="Drawing", canvas_size=(280, 280), layers=False, visible=False, elem_id="drawing"
            )
            share = gradio.Slider(0, 0.9, value=0.5, step=0.05, label="Share of set pixels that is cleared", elem_id="share")
            seed = gradio.Slider(0, 20, value=0, step=1, label="Seed of the damage")
            steps = gradio.Slider(1, 60, value=20, step=1, label="Steps")
            button = gradio.Button("Retrieve", variant="primary", elem_id="retrieve")
        with gradio.Column(scale=2):
            figure = gradio.Plot(show_label=False, elem_id="way")
            words = gradio.Markdown(elem_id="retrieved")
    source.change(
        lambda chosen: (gradio.update(visible=chosen == "pick"), gradio.update(visible=chosen == "draw")),
        source, [digit, drawing], **HIDDEN,
    )  # fmt: skip
    button.click(recall, [source, digit, drawing, share, seed, steps], [figure, words], **HIDDEN)


def methods_tab() -> None:
    gradio.Markdown(
        "One network, h = tanh(W h + x), at its exact steady state. Move ρ(J) past 1 and see which methods still converge, "
        "and what the certificate says to it."
    )
    with gradio.Row():
        with gradio.Column(scale=1):
            radius = gradio.Slider(0.1, 1.5, value=0.9, step=0.05, label="ρ(J)", elem_id="radius")
            skew = gradio.Slider(0, 3, value=0.5, step=0.1, label="Non-normality")
            K = gradio.Slider(0, 40, value=20, step=1, label="K of the certificate")
            button = gradio.Button("Compare", variant="primary", elem_id="compare")
        with gradio.Column(scale=2):
            figure = gradio.Plot(show_label=False, elem_id="errors")
            words = gradio.Markdown(elem_id="certificate")
    for event in (button.click, radius.release, skew.release, K.release):
        event(contrast, [radius, skew, K], [figure, words], **HIDDEN)


def diagnosis_tab() -> None:
    gradio.Markdown("Choose an update, iterate it, and let `sg.diagnose` look at where it ends.")
    with gradio.Row():
        with gradio.Column(scale=1):
            kind = gradio.Dropdown(list(updates.KINDS), value=FIRST, label="Update", elem_id="kind")
            strength = slider_of(FIRST)
            steps = gradio.Slider(1, updates.STEPS, value=100, step=1, label="Steps before the look")
            button = gradio.Button("Diagnose", variant="primary", elem_id="diagnose")
        with gradio.Column(scale=1):
            figure = gradio.Plot(show_label=False, elem_id="eigenvalues")
    text = gradio.Textbox(label="Diagnosis", lines=20, interactive=False, elem_id="diagnosis")
    kind.change(slider_of, kind, strength, **HIDDEN)
    for event in (button.click, strength.release, steps.release):
        event(examine, [kind, strength, steps], [text, figure], **HIDDEN)


def pages() -> gradio.Blocks:
    """The three tabs."""
    with gradio.Blocks(title="steadygrad playground", analytics_enabled=False) as blocks:
        gradio.Markdown("# steadygrad playground\nGradients at steady states, to play with. Nothing leaves this machine.")
        with gradio.Tabs():
            for name, fill in {"Memory": memory_tab, "Methods": methods_tab, "Diagnosis": diagnosis_tab}.items():
                with gradio.Tab(name):
                    fill()
    return blocks


def application(port: int) -> Application:
    """The server's application, for its own pages on this port alone."""
    theme = gradio.themes.Base(primary_hue="teal", font=SYSTEM_FONTS, font_mono=FIXED_FONTS)  # pyright: ignore[reportPrivateImportUsage]
    css = "#diagnosis textarea { font-family: ui-monospace, monospace; font-size: 0.8rem; white-space: pre; overflow-x: auto }"
    plain = FastAPI(openapi_url=None)
    mounted = gradio.mount_gradio_app(plain, pages(), path="/", theme=theme, css=css, footer_links=[], ssr_mode=False)
    return OwnPagesOnly(mounted, port)


def serve(port: int) -> None:
    """Answer on 127.0.0.1 until stopped."""
    import uvicorn

    torch.set_num_threads(1)  # the networks are small: threads would wait for each other
    threading.Thread(target=retrieval.memory, daemon=True).start()  # learned while the page opens
    print(f"steadygrad playground: http://127.0.0.1:{port}  (Ctrl-C ends it)", flush=True)
    uvicorn.run(application(port), host="127.0.0.1", port=port, log_level="warning")  # pyright: ignore[reportArgumentType]
