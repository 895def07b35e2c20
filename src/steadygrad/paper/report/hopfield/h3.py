"""H3: the digits are retrieved from corrupted images; pictures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Picture

from steadygrad.paper.report.hopfield.trials import GOOD, good
from steadygrad.paper.report.style import WIDTH, look
from steadygrad.paper.report.text import percent
from steadygrad.paper.report.trial import Group, Trial
from steadygrad.paper.report.verdicts import Outcome

RETRIEVED = 0.01
"""An image is retrieved if at most this share of its pixels is wrong, on average over seeds."""
SURPLUS, LACKING = (213, 94, 0), (130, 195, 235)  # vermilion, light blue: dark and light in grey
GAP, MAGNIFIED = 3, 4
Image = np.ndarray[Any, np.dtype[np.uint8]]


def wrong(setting: Group) -> dict[str, float]:
    """The share of wrong pixels of each method, on the validation corruption or on ten drawn later, whichever is worse."""
    return {
        method: max(statistics.fmean(t.result[key] for t in trials) for key in ("pixel_error", "pixel_error_fresh"))
        for method in GOOD
        if (trials := setting.of(method))
    }


def retrieved(setting: Group) -> Outcome:
    return Outcome.of(max(wrong(setting).values()) <= RETRIEVED if good(setting) else None)


def shown(setting: Group) -> dict[str, Trial]:
    """A trial a method, all of the lowest seed that every method has, or of its own lowest where there is none."""
    trials = {method: setting.of(method) for method in setting.methods()}
    common = set.intersection(*({trial.seed for trial in found} for found in trials.values())) if trials else set[int]()
    return {method: next((t for t in found if t.seed in common), found[0]) for method, found in trials.items()}


def digits(setting: Group) -> Picture:
    """Rows: corrupted input, clean image, then what each method retrieves."""
    trials = shown(setting)
    first = next(iter(trials.values()))
    side = first.config["side"]
    clean, corrupted = (unpacked(first.result["images"][key], side) for key in ("clean", "corrupted"))
    rows = [("corrupted", first.result["pixel_error_corrupted"], coloured(corrupted, corrupted))]
    rows.append(("clean", 0.0, coloured(clean, clean)))
    for method, trial in trials.items():
        images = unpacked(trial.result["images"]["retrieved"], side)
        rows.append((look(method).label, trial.result["pixel_error"], coloured(images, clean)))
    picture = Picture(figsize=(WIDTH, 0.1 + 0.525 * len(rows)))
    axes = picture.subplots()
    axes.imshow(sheet([images for _, _, images in rows]), interpolation="none")
    step = (side + GAP) * MAGNIFIED
    places = [step * i + step // 2 for i in range(len(rows))]
    axes.set_yticks(places, [label for label, _, _ in rows])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    for place, (_, error, _) in zip(places, rows, strict=True):
        axes.text(1.012, place, percent(error), transform=axes.get_yaxis_transform(), va="center", fontsize=8.5)
    return picture


def coloured(images: Image, clean: Image) -> Image:
    """Black on white, wrong pixels in colour."""
    out = np.repeat((255 * (1 - images))[..., None], 3, axis=-1).astype(np.uint8)
    out[images > clean] = SURPLUS
    out[images < clean] = LACKING
    return out


def sheet(rows: Sequence[Image]) -> Image:
    """Rows of images with white between them, magnified so that no viewer blurs them."""
    space = (GAP - GAP // 2, GAP // 2)
    framed = np.pad(np.stack(rows), ((0, 0), (0, 0), space, space, (0, 0)), constant_values=255)
    lines = np.concatenate([np.concatenate(list(row), axis=1) for row in framed])
    return lines.repeat(MAGNIFIED, axis=0).repeat(MAGNIFIED, axis=1)


def unpacked(packed: Sequence[str], side: int) -> Image:
    """Images from hexadecimal digits, the first pixel in the highest bit: (images, side, side) zeros and ones."""
    rows = [np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8))[: side**2] for text in packed]
    return np.stack(rows).reshape(len(packed), side, side)
