"""A memory for one's own black and white images: the Hopfield network of the paper, trained where its assumptions hold."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Self, cast

import torch
from torch import Tensor

from steadygrad import Auto, Implicit, Picard, Status
from steadygrad.models.estimator import Estimator
from steadygrad.models.hopfield.learning import Learning, Schedule, pixels, retrieve, settle
from steadygrad.models.hopfield.network import Hopfield
from steadygrad.models.hopfield.stored import SHOWN, MemoryWarning, Stored, corrupt

FORMAT = "steadygrad associative memory 1"
SLOPE, SCALE = 3.0, 1e-3
"""b and the spread of the first weights, those of the experiment's corrected mode."""
HIDDEN, LEAST_HIDDEN = 1.3, 16
"""Hidden neurons a pixel, as in the paper, where 784 pixels have 1,024; and how many there are at least."""
RATE, MOST = 0.4, 0.01
"""Adam's rate times the pixels, and its largest: 5e-4 for the 784 of the experiment, half of its rate for twice its passes."""
WARMUP = 10
"""The rate grows over the first of so many parts of the passes, as in the experiment."""
BATCH = 50
"""Images a step at most. The ten of the experiment are one batch."""
STORING, RECALLING = 1e-5, 1e-4
"""How still the state is, relative to itself, when it is learnt from and when it is read."""
DRAWS = 5
"""Corruptions of each image with which `store` tries what it has stored."""


class AssociativeMemory(Estimator):
    """Store black and white images, recall them from corrupted ones.

    A continuous Hopfield network h ← W φ(b h) with the image clamped to its observed neurons; its output neurons show the
    image at the steady state, and the implicit gradient there teaches it. It completes images of which set pixels are
    missing; the weights grow with the square of the pixels. Liao et al. 2018, section 5.1.

    `store` and `recall` are the words of a memory; `fit`, `predict` and `score` are the same in those of scikit-learn.

    >>> memory = AssociativeMemory((2, 2), hidden=16)
    >>> memory.store([[[1, 0], [0, 1]], [[0, 1], [1, 0]]]).clean
    (0.0, 0.0)
    >>> memory.recall([[[1, 0], [0, 1]]]).int().tolist()
    [[[1, 0], [0, 1]]]
    """

    def __init__(self, shape: Sequence[int], hidden: int | None = None, seed: int = 0) -> None:
        """For images of this shape; 1.3 hidden neurons a pixel unless told otherwise, as in the paper."""
        self.shape = tuple(shape)
        if not self.shape or not all(isinstance(side, int) and side >= 1 for side in self.shape):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"shape must be the lengths of an image's sides, as (12, 12); got {tuple(shape)}.")
        self.hidden = max(LEAST_HIDDEN, round(HIDDEN * prod(self.shape))) if hidden is None else hidden
        self.seed = seed
        self.model = self._fresh()
        self._learnt = False

    @torch.enable_grad()
    def store(
        self,
        images: Any,
        passes: int = 200,
        rate: float | None = None,
        report: Callable[[int, int, str], None] | None = None,
        updates: int = 50,
    ) -> Stored:
        """Learn the images, (count, *shape) of zeros and ones, from fresh weights: what was stored before is forgotten.

        `report(done, passes, "L1 0.12")` is called after every pass. Warns if an image is not stored well. The rate is Adam's;
        unless given it is 0.4 / pixels, 0.01 at most: half of what suits the digits of the experiment, for twice its passes.
        """
        x = self._flat(images)
        rate = min(MOST, RATE / prod(self.shape)) if rate is None else rate
        forward = Picard(max_steps=updates, rtol=STORING)
        schedule = Schedule("sigmoid", passes, rate, passes // WARMUP, True, min(len(x), BATCH), forward)
        self.model, self._learnt = self._fresh(), False
        for done in Learning(self.model, x, schedule, lambda _: Implicit(Auto())):
            if report is not None:
                report(done.number, passes, f"L1 {done.l1:.3f}")
        self._learnt = True
        stored = self._check(x, updates)
        if not stored.well:
            warnings.warn(str(stored), MemoryWarning, stacklevel=3)  # beyond enable_grad
        return stored

    @torch.no_grad()
    def recall(self, corrupted: Any, updates: int = 200) -> Tensor:
        """What the memory makes of corrupted images, (count, *shape) of zeros and ones; True where a pixel is set.

        The network is updated until its state moves by less than a part in 10⁴. Warns if an image's state does not settle.
        """
        if not self._learnt:
            raise RuntimeError("nothing is stored yet; call store(images) first, or AssociativeMemory.load(path).")
        solution, _ = settle(self.model, self._flat(corrupted), Picard(max_steps=updates, rtol=RECALLING), Implicit(Auto()))
        restless = [i for i, status in enumerate(solution.problems.statuses) if status is not Status.CONVERGED]
        if restless:
            named = ", ".join(map(str, restless[:SHOWN])) + ", ..." * (len(restless) > SHOWN)
            warnings.warn(
                f"{len(restless)} of {len(solution.problems.statuses)} recalls did not settle in {updates} updates: image "
                f"{named}. What they show may be no image that was stored. Raise updates, or give more of the image.",
                MemoryWarning,
                stacklevel=3,  # beyond no_grad
            )
        return (pixels(self.model, solution.value, "sigmoid") >= 0.5).view(-1, *self.shape)

    def fit(self, images: Any, y: None = None, *, passes: int = 200, rate: float | None = None, updates: int = 50) -> Self:
        """`store`, which see; returns the memory. `y` is there for scikit-learn and must be None: images are their own answer."""
        if y is not None:
            raise ValueError("y must be None: what a memory learns are the images themselves.")
        self.stored_ = self.store(images, passes, rate, updates=updates)
        return self

    def predict(self, corrupted: Any) -> Tensor:
        """`recall` with its usual number of updates."""
        return self.recall(corrupted)

    def score(self, corrupted: Any, images: Any) -> float:
        """The share of pixels that come back right when `images` are recalled from `corrupted` ones; 1 is best."""
        return float((self.recall(corrupted).flatten(1) == self._flat(images).bool()).float().mean())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights and the shape to a file."""
        if not self._learnt:
            raise RuntimeError("nothing is stored yet; call store(images) first.")
        content = {"format": FORMAT, "shape": list(self.shape), "hidden": self.hidden, "seed": self.seed}
        torch.save({**content, "weights": self.model.state_dict()}, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AssociativeMemory:
        """Read what `save` wrote. No code in the file is run."""
        try:
            content = torch.load(path, weights_only=True)
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            raise
        except Exception as error:  # torch raises a RuntimeError, an UnpicklingError or an EOFError, as the file may be
            raise ValueError(f"{path} is no saved memory: {type(error).__name__}; give a file that save() wrote.") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
            raise ValueError(f"{path} is no saved memory of this version ({FORMAT!r}); give a file that save() wrote.")
        try:
            memory = cls(content["shape"], content["hidden"], content["seed"])  # pyright: ignore[reportUnknownArgumentType]
            memory.model.load_state_dict(content["weights"])  # pyright: ignore[reportUnknownArgumentType]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{path} is a saved memory that does not fit together: {error}") from error
        memory._learnt = True
        return memory

    def _fresh(self) -> Hopfield:
        return Hopfield(prod(self.shape), self.hidden, SLOPE, SCALE, self.seed).float()

    def _flat(self, images: Any) -> Tensor:
        """(count, pixels) zeros and ones in float32."""
        if isinstance(images, (list, tuple)) and images and isinstance(images[0], Tensor):
            images = torch.stack(list(cast("Sequence[Tensor]", images)))
        x = images.detach() if isinstance(images, Tensor) else torch.tensor(images)
        if x.shape[1:] != self.shape or not len(x):
            wanted = ", ".join(map(str, self.shape))
            raise ValueError(f"images have shape {tuple(x.shape)}; give (count, {wanted}), one image at least.")
        if not ((x == 0) | (x == 1)).all():
            raise ValueError("images hold other values than 0 and 1; threshold them first, as images > 0.5.")
        return x.flatten(1).float()

    def _check(self, x: Tensor, updates: int) -> Stored:
        """Recall every image from itself and from corruptions of itself."""
        inputs = torch.cat([x, *(corrupt(x, self.seed + draw) for draw in range(1, DRAWS + 1))])
        shown = pixels(self.model, retrieve(self.model, inputs, updates), "sigmoid") >= 0.5
        wrong = (shown.view(DRAWS + 1, *x.shape) != x.bool()).float().mean(dim=2)
        return Stored(tuple(wrong[0].tolist()), tuple(wrong[1:].mean(dim=0).tolist()))
