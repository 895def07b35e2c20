"""What the page says of the Hopfield experiment: claims H1 to H4, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from steadygrad.records import Record
from steadygrad.report.hopfield import costs, departures, figures, pictures, tables, words
from steadygrad.report.hopfield.claims import claims
from steadygrad.report.hopfield.trials import TITLES, K, Mode, Sorted, Variant, sort
from steadygrad.report.section import Block, Figure, Section

__all__ = ["section"]

LONG = 3
"""A variant of so many times the passes of its mode gets a curve of its own."""


def section(records: Sequence[Record]) -> Section:
    """Verdicts, figures, tables and words, each computed from the records; what they cannot show is left out or named."""
    found = sort(records)
    return Section(
        name="hopfield",
        title="Associative memory",
        about=words.ABOUT,
        claims=claims(found),
        blocks=tuple(blocks(found)) if found.all else ("No trial has a result.",),
        settings=costs.settings(found),
        command="steadygrad run hopfield --preset standard --out results",
    )


def blocks(found: Sorted) -> list[Block]:
    made: list[Block] = ["## Learning curves", words.curves(found), curves(found)]
    made += ["## Success, and where RBP's failure comes from", tables.success(found), tables.losses(found)]
    if (rows := tables.start(found)).rows:
        made += [words.start(found), rows, start(found)]
    made += ["## Retrieved digits", *(digits(mode) for mode in reversed(found.all) if mode.methods())]
    made += ["## Steady states", words.steady(found), differences(found), tables.steady(found)]
    made += [words.energy(found), energy(found), *filter(None, [words.jacobian(found)]), jacobian(found)]
    if (ablation := departures.ablation(found)) is not None:
        made += ["## What the corrected mode changes", words.ablation(found), ablation]
    if longer := [variant for variant in found.variants if is_long(variant)]:
        made += ["## Many more passes", words.long(longer), long(longer), departures.long(longer)]
    return [*made, "## Cost", costs.cost(found)]


def curves(found: Sorted) -> Figure:
    return Figure(
        "hopfield-h1",
        f"H1: training and validation loss with K = {K}. Lines: median over seeds; bands: from the lowest to the highest seed. "
        "Training: clean images; validation: half of the set pixels cleared.",
        f"Loss curves of all methods in {plainly(found)}. {words.curves(found)}",
        partial(figures.h1, found),
        count(found),
    )


def start(found: Sorted) -> Figure:
    return Figure(
        "hopfield-h2-residual",
        "RBP's adjoint residual against ρᴷ‖z₀‖/‖b‖ at every validated pass of every RBP trial, with ρ(J) and b of that trial.",
        "Points along the diagonal, in the order of K: the larger K, the smaller both.",
        partial(figures.start, found),
        sum(len(mode.of("rbp", steps)) for mode in found.all for steps in mode.counts),
    )


def digits(mode: Mode) -> Figure:
    seeds = sorted({trial.seed for trial in pictures.shown(mode).values()})
    name = "hopfield-h3" if mode.name == "corrected" else "hopfield-h3-as-published"
    return Figure(
        name,
        f"H3, {TITLES[mode.name].lower()}: the ten digits corrupted, clean, and as each method retrieves them (K = {K}, seed "
        f"{', '.join(map(str, seeds))}). Black: set; orange: set but should not be; light blue: not set but should be. At the "
        "right: the share of wrong pixels.",
        f"Ten digits in rows: corrupted, clean, and retrieved. Wrong pixels: {pictures.errors(mode)}.",
        partial(pictures.grid, mode),
        len(pictures.shown(mode)),
    )


def differences(found: Sorted) -> Figure:
    return Figure(
        "hopfield-h4",
        f"H4: how far the state moves in each step of the trained networks (K = {K}). Relative: the slowest of the ten images; "
        "absolute: their mean. Lines: median over seeds; bands: lowest to highest.",
        f"Falling curves of the state difference over 50 steps in {plainly(found)}. {words.steady(found)}",
        partial(figures.h4, found),
        count(found),
    )


def energy(found: Sorted) -> Figure:
    return Figure(
        "hopfield-energy",
        "The Lyapunov function along retrieval from corrupted images, mean over the ten: the part of its fall that is still to "
        "come. Records keep six digits of it, so that a curve ends near one part in a million.",
        f"Falling curves in {plainly(found)}. {words.energy(found)}",
        partial(figures.energy, found),
        count(found),
    )


def jacobian(found: Sorted) -> Figure:
    return Figure(
        "hopfield-jacobian",
        f"ρ(J) at the steady states of the clean images, and the residual of the adjoint equation, through training (K = {K}).",
        f"Spectral radius and adjoint residual over passes in {plainly(found)}. {words.jacobian(found)}",
        partial(figures.jacobian, found),
        count(found),
    )


def long(variants: Sequence[Variant]) -> Figure:
    return Figure(
        "hopfield-long",
        "Training loss as published over many more passes, in two sizes of network.",
        "Training losses that come down to about that of a constant image, or stay above it.",
        partial(figures.long, variants),
        sum(len(variant.trials) for variant in variants),
    )


def is_long(variant: Variant) -> bool:
    return variant.trials[0].config["passes"] >= LONG * variant.base.setting["passes"]


def count(found: Sorted) -> int:
    """Trials with K = 20, or without a K."""
    return sum(len(mode.of(method)) for mode in found.all for method in mode.methods())


def plainly(found: Sorted) -> str:
    return " and ".join(f"the {TITLES[mode.name].lower()} mode" for mode in found.all)
