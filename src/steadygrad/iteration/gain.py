"""By how much the error of a linear equation exceeds the residual, from what has been computed: nothing is evaluated here.

The residual r and the error e of a linear equation obey A e = r, so the error is the residual times a gain that depends on its
direction: one number for all directions, as a condition number is, would be wrong by orders of magnitude. Two points and the
residuals there tell the gain along the line between them; more of them that of the space between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from operator import mul
from typing import Any

import numpy
import torch
from torch import Tensor

from steadygrad.iteration.norms import Mask, Numbers
from steadygrad.iteration.solver import Iteration
from steadygrad.state.shards import current, sharing, total

BLOCK = 2**18
"""Numbers of all vectors together that are copied to float64 at once: 2 MB, which caches hold. Eight vectors of 64×512 in
one block take 0.29 ms, in four of them 0.49 ms."""
PIECE = 2**15
"""Numbers that are copied at a time where there are more: the copies take three of float32 for each, so that in a state of 2¹⁷
numbers a piece takes less memory than one vector."""
HELD = 2**19
"""Numbers that an estimate may hold until somebody asks for it: 2 MB in float32."""
NOISE = 1e-9
"""Directions of the span weaker than this (in the square, relative to the steps) are noise."""
SMALL, LARGE = 1e-50, 1e50
"""Between these nothing that is worked out from inner products leaves the range of float64, so that nothing warns of it."""


class Gains:
    """‖e‖ / ‖r‖ of every row and, where it can be told, ‖z + e‖, worked out when somebody asks, from a few numbers."""

    holds_vectors = False
    """Whether vectors are held until then."""

    def __init__(self, work: Callable[..., tuple[Numbers, Numbers | None]], *given: Any) -> None:
        self._work, self._given = work, given

    def values(self) -> tuple[Numbers, Numbers | None]:
        return self._work(*self._given)

    def for_later(self) -> Gains:
        """The same to be asked for after the solve, when those who have its vectors may change them."""
        return self

    def kept_elsewhere(self, rows: Mask) -> Gains:
        """The same where these rows keep another iterate than the last, from which nobody can tell how large the solution is."""
        return Gains(_kept_elsewhere, self, rows)


class _Held(Gains):
    """Gains from vectors with their products, r and z, which are held until somebody asks."""

    holds_vectors = True

    def __init__(self, seen: list[tuple[Tensor, Tensor]], residual: Tensor, z: Tensor) -> None:
        super().__init__(_gains_of_held, seen, residual, z)

    def for_later(self) -> Gains:
        [(first, image), *others], residual, z = self._given  # the first may be the caller's b, and z is handed out
        return _Held([(first.clone(), image), *others], residual, z.clone())


def _kept_elsewhere(gains: Gains, rows: Mask) -> tuple[Numbers, Numbers | None]:
    gain, whole = gains.values()
    return gain, None if whole is None else numpy.where(rows, numpy.nan, whole)


def known(solver: Iteration, recent: list[Any]) -> list[tuple[Tensor, Tensor]]:
    """The points at which the residual is known, with it."""
    return [(solver.point(state), r) for state in recent if (r := solver.residual(state)) is not None]


def gains(solver: Iteration, recent: list[Any], end: tuple[Tensor, Tensor] | None = None) -> Gains:
    """‖error‖ / ‖residual‖ for each row at the end of a linear iteration: the solver's own, or from its recent states.

    `end` is the iterate that is kept with its true residual, where that is known.
    """
    own = solver.gain(recent[-1])
    if own is not None:
        return own if isinstance(own, Gains) else Gains(_itself, own)
    pairs = known(solver, recent)
    if solver.chained and len(pairs) > 1:
        return _of_chain(pairs, end)
    return extrapolated(pairs if end is None else [*pairs, end])


def extrapolated(pairs: list[tuple[Tensor, Tensor]]) -> Gains:
    """‖e‖ / ‖r‖ at the last of some points, from the residuals there, a row a problem.

    Steps s_j from point to point took c_j = A s_j off the residual. The part of r in the span of the changes is inverted
    exactly (reduced rank extrapolation); the rest is given the largest gain met in that span.
    """
    m = len(pairs) - 1
    if m == 0:
        return Gains(_itself, numpy.ones(len(pairs[0][1])))
    points, residuals = zip(*pairs, strict=True)
    nothing, here = numpy.zeros((m, m + 1)), numpy.eye(m + 1)
    there = here[1:] - here[:-1]
    # Differences are taken before their products: in products of points that hardly differ they would be lost.
    rows = [[there, nothing], [nothing, -there], [0 * here[-1:], here[-1:]], [here[-1:], 0 * here[-1:]]]
    return Gains(_gains, inner_products([*points, *residuals], len(points[0]), torch.from_numpy(numpy.block(rows))).cpu().numpy())


def _of_chain(pairs: list[tuple[Tensor, Tensor]], end: tuple[Tensor, Tensor] | None) -> Gains:
    """`extrapolated` for points of which each is the residual at the one before further, from fewer vectors.

    The end may be far from them: a row of a batch that was done early keeps its iterate while the others go on.
    """
    residuals = [residual for _, residual in pairs]
    m, point = len(pairs) - 1, pairs[-1][0]
    if end is None:
        return Gains(_gains_of_series, inner_products([*residuals, point], len(point)).cpu().numpy())
    here = numpy.eye(m + 4)
    steps = [*here[:m], here[m + 1]]
    changes = [*(here[:m] - here[1 : m + 1]), here[m] - here[m + 2]]
    rows = numpy.stack([*steps, *changes, here[m + 2], here[m + 3]])
    known = inner_products([*residuals, end[0] - point, end[1], end[0]], len(point)).cpu().numpy()
    return Gains(_gains, _combined(rows, known))


def _combined(rows: Numbers, known: Numbers) -> Numbers:
    """The inner products of combinations, each a row of coefficients, of some vectors with known ones."""
    with numpy.errstate(all="ignore"):  # what is not finite is seen by who works with it
        return rows @ known @ rows.T


def gains_by_products(seen: list[tuple[Tensor, Tensor]], residual: Tensor, z: Tensor) -> Gains:
    """`extrapolated` from some vectors with their products, (v, Jᵀv): A = I − Jᵀ takes v to v − Jᵀv."""
    if not seen:
        return Gains(_itself, numpy.ones(residual.shape[0]))
    if residual.numel() * (len(seen) + 3) < HELD and current() is None:
        return _Held(seen, residual, z)
    return _of_products(seen, residual, z)


def _gains_of_held(seen: list[tuple[Tensor, Tensor]], residual: Tensor, z: Tensor) -> tuple[Numbers, Numbers | None]:
    """Of vectors that are whole, whoever asks: perhaps a later solve whose own are divided over ranks."""
    with sharing(None):
        return _of_products(seen, residual, z).values()


def _of_products(seen: list[tuple[Tensor, Tensor]], residual: Tensor, z: Tensor) -> Gains:
    """From the inner products of the vectors, of what A makes of them, of r and of z."""
    series, shape = [vector for vector, _ in seen], seen[0][0].shape
    ends = [end if end.shape == shape else end.reshape(shape) for end in (residual, z)]
    if all(image.data_ptr() == v.data_ptr() for (_, image), v in zip(seen, [*series[1:], residual], strict=True)):
        vectors = [v if v.shape == shape else v.reshape(shape) for v in series]
        return Gains(_gains_of_series, inner_products([*vectors, *ends], len(residual)).cpu().numpy())
    vectors, steps, changes = distinct(seen)
    m, count = steps.shape
    rows = numpy.eye(2 * m + 2, count + 2, k=count - 2 * m)  # the last two are r and z as they are
    rows[:m, :count], rows[m : 2 * m, :count] = steps, changes
    return Gains(_gains, _combined(rows, inner_products([*vectors, *ends], len(residual)).cpu().numpy()))


@cache
def _terms_in(count: int) -> Numbers:
    """So many terms of a series, v − Jᵀv of each, r and z, in terms of these terms, of r, the product of the last, and of z."""
    terms = numpy.eye(count, count + 2)
    return numpy.vstack([terms, terms - numpy.eye(count, count + 2, k=1), numpy.eye(2, count + 2, k=count)])


def distinct(seen: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], Numbers, Numbers]:
    """The different vectors among some with their products, all of one shape, and v and v − Jᵀv in terms of these.

    Consecutive terms of a series share their vectors, of which each is multiplied once.
    """
    places: dict[int, int] = {}
    vectors: list[Tensor] = []
    shape = seen[0][0].shape
    for vector in (v for pair in seen for v in pair):
        if id(vector) not in places:
            places[id(vector)] = len(vectors)
            vectors.append(vector if vector.shape == shape else vector.reshape(shape))
    take = numpy.eye(len(vectors))
    steps = take[[places[id(v)] for v, _ in seen]]
    return vectors, steps, steps - take[[places[id(image)] for _, image in seen]]


def _gains(gram: Numbers) -> tuple[Numbers, Numbers]:
    """‖e‖ / ‖r‖ and ‖z + e‖ from the Gram matrices (problems, 2m + 2, 2m + 2) of m steps, what each took off r, r, and z."""
    m = gram.shape[1] // 2 - 1
    identity = numpy.eye(m)
    with numpy.errstate(all="ignore"):
        by_step, by_change, along = gram[:, :m, :m], gram[:, m:-2, m:-2], gram[:, m:-2, -2:-1]
        r, z = gram[:, -2, -2], gram[:, -1, -1]
        diagonal = by_change.diagonal(axis1=1, axis2=2)
        there = diagonal > 0  # a change of zero: two points are the same
        # In units in which every change has length 1: squares of small ones would leave nothing to divide by.
        unit = numpy.where(there, numpy.sqrt(diagonal), 1.0)
        scale = unit[:, :, None] * unit[:, None, :]
        system = by_change / scale + identity * numpy.where(there, NOISE, 1.0)[:, None, :]
        solvable = numpy.isfinite(system.sum(axis=(1, 2)) + r + z) & there.any(axis=1)
        if not solvable.all():
            system[~solvable] = identity
        inverse = numpy.linalg.inv(system) / scale
        combination = inverse @ along  # the extrapolated error, in terms of the steps
        across = combination.mT
        inside = numpy.fmax((across @ by_step @ combination)[:, 0, 0], 0.0)
        rest = numpy.fmax(r - (across @ along)[:, 0, 0], 0.0)
        beyond = rest * numpy.fmax((inverse * by_step).sum(axis=(1, 2)), 0.0)
        gain = numpy.sqrt((inside + beyond) / r)
        shifted = z + 2 * (gram[:, -1:, :m] @ combination)[:, 0, 0] + inside
        whole = numpy.sqrt(numpy.fmax(shifted, 0.0) + beyond)
        sound = solvable & numpy.isfinite(gain + whole)
        if sound.all():
            return gain, whole
        return numpy.where(sound, gain, 1.0), numpy.where(sound, whole, numpy.hypot(numpy.sqrt(r), numpy.sqrt(z)))


def _gains_of_series(known: Numbers) -> tuple[Numbers, Numbers]:
    """The same from the inner products of terms v, Jᵀv, …, of r, the product of the last of them, and of z."""
    if len(known) == 1 and (one := _gain_of_one_series(known[0].tolist())) is not None:
        return numpy.array(one[:1]), numpy.array(one[1:])
    return _gains(_combined(_terms_in(known.shape[1] - 2), known))


def _gain_of_one_series(known: list[list[float]]) -> tuple[float, float] | None:
    """What `_gains` gives for one problem, without numpy, of which little is in the caches at the end of a solve: half of the
    time. None where something is zero or not finite."""
    m = len(known) - 2
    r, z = known[m][m], known[m + 1][m + 1]
    changes = [[a - b for a, b in zip(one, after, strict=True)] for one, after in pairwise(known[: m + 1])]
    if not (min(row[i] - row[i + 1] for i, row in enumerate(changes)) > SMALL and r > SMALL and max(map(max, known)) < LARGE):
        return None
    factor: list[list[float]] = []  # of Cholesky, row by row, of the inner products of the changes
    inverse: list[list[float]] = []  # of the factor: its rows are steps whose changes are orthonormal
    for i, row in enumerate(changes):
        new: list[float] = []
        for j in range(i):
            new.append((row[j] - row[j + 1] - _dot(new, factor[j])) * inverse[j][j])
        left = (row[i] - row[i + 1]) * (1 + NOISE) - _dot(new, new)
        if not left > 0:
            return None
        scale = 1 / math.sqrt(left)
        inverse.append([-scale * _dot(new[j:], [other[j] for other in inverse[j:]]) for j in range(i)] + [scale])
        factor.append([*new, 1 / scale])
    on_r = [change[m] for change in changes]
    along = [_dot(row, on_r) for row in inverse]
    combination = [_dot(along[j:], [row[j] for row in inverse[j:]]) for j in range(m)]
    inside = max(_square(combination, known), 0.0)
    beyond = max(r - _dot(along, along), 0.0) * max(sum(_square(row, known) for row in inverse), 0.0)
    shifted = max(z + 2 * _dot(combination, known[-1]) + inside, 0.0)
    found = math.sqrt((inside + beyond) / r), math.sqrt(shifted + beyond)
    return found if math.isfinite(sum(found)) else None


def _dot(a: list[float], b: list[float]) -> float:
    """The sum of products, as far as both go."""
    return sum(map(mul, a, b))


def _square(a: list[float], known: list[list[float]]) -> float:
    """‖Σ aᵢvᵢ‖² of vectors with such inner products, of as many of them as there are numbers."""
    return sum(x * _dot(a, row) for x, row in zip(a, known, strict=False))


def inner_products(vectors: list[Tensor], problems: int, combined: Tensor | None = None) -> Tensor:
    """The inner products of vectors, of any shape, with each other, in float64, without a float64 copy of all of them.

    They are (problems, vectors, vectors); with `combined` (count, vectors) those of so many combinations of them.
    """
    size = vectors[0].numel() // problems
    device, count = vectors[0].device, len(vectors)
    combined = None if combined is None else combined.to(device)
    rows = max(1, PIECE // (size * count))
    width = max(1, PIECE // count)
    if problems * size * count <= BLOCK:  # one block, the usual case for small states
        if problems == 1:
            shape = vectors[0].shape
            block = torch.stack([v if v.shape == shape else v.reshape(shape) for v in vectors]).view(count, size).double()
        else:
            block = torch.stack([vector.reshape(problems, size) for vector in vectors], dim=1).double()
        block = block if combined is None else combined @ block
        return total((block @ block.mT).view(problems, *block.shape[-2:-1] * 2))
    shape = (problems, count if combined is None else combined.shape[0])
    gram = torch.zeros(*shape, shape[1], dtype=torch.float64, device=device)
    vectors = [vector.reshape(problems, size) for vector in vectors]
    for i, some in enumerate(zip(*(vector.split(rows) for vector in vectors), strict=True)):
        there = gram[i * rows : (i + 1) * rows]
        for pieces in zip(*(vector.split(width, dim=1) for vector in some), strict=True) if width < size else [some]:
            block = torch.stack(pieces, dim=1).double()
            block = block if combined is None else combined @ block
            there.baddbmm_(block, block.mT)
            del block  # before the next is made
    return total(gram)


def _itself(numbers: Numbers, whole: Numbers | None = None) -> tuple[Numbers, Numbers | None]:
    return numbers, whole
