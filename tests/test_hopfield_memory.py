"""The associative memory: what is stored comes back, also from a file, and what goes wrong is said."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from steadygrad.models import AssociativeMemory, MemoryWarning, Stored, corrupt
from steadygrad.models.hopfield.memory import FORMAT


def pictures(count: int = 3, seed: int = 0) -> Tensor:
    return (torch.rand(count, 5, 6, generator=torch.Generator().manual_seed(seed)) < 0.4).int()


@pytest.fixture(scope="module")
def memory() -> AssociativeMemory:
    made = AssociativeMemory((5, 6))
    assert made.store(pictures(), passes=50).well
    return made


def test_what_was_stored_is_recalled_from_half_of_it(memory: AssociativeMemory):
    damaged = corrupt(pictures().flatten(1), seed=5).view(3, 5, 6)
    assert (damaged != pictures()).any()
    recalled = memory.recall(damaged)
    assert recalled.dtype == torch.bool
    assert torch.equal(recalled, pictures().bool())


@pytest.mark.parametrize("kind", [Tensor.tolist, Tensor.numpy, Tensor.bool, Tensor.double], ids=lambda kind: kind.__name__)
def test_images_may_be_lists_arrays_or_tensors(memory: AssociativeMemory, kind: Any):
    assert torch.equal(memory.recall(kind(pictures())), pictures().bool())


def test_progress_is_told_and_storing_starts_over():
    told: list[tuple[int, int, str]] = []
    memory = AssociativeMemory((5, 6), seed=3)
    first = memory.store(pictures(seed=1), passes=30, report=lambda *what: told.append(what))
    assert [done for done, _, _ in told] == list(range(1, 31))
    assert all(total == 30 and note.startswith("L1 0.") for _, total, note in told)
    weights = memory.model.coupling.detach().clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryWarning)
        memory.store(pictures(seed=2), passes=5)
    assert memory.store(pictures(seed=1), passes=30) == first
    assert torch.equal(memory.model.coupling, weights)


def test_a_saved_memory_is_the_same_memory(memory: AssociativeMemory, tmp_path: Path):
    memory.save(tmp_path / "memory.pt")
    again = AssociativeMemory.load(tmp_path / "memory.pt")
    assert (again.shape, again.hidden, again.seed) == (memory.shape, memory.hidden, memory.seed)
    assert torch.equal(again.model.coupling, memory.model.coupling)
    assert torch.equal(again.recall(pictures()), memory.recall(pictures()))


def test_a_file_that_is_no_memory_is_refused(tmp_path: Path):
    (tmp_path / "text").write_text("hello")
    torch.save({"format": "something else"}, tmp_path / "other")
    torch.save(pictures(), tmp_path / "tensor")
    np.savez(tmp_path / "array.npz", x=np.zeros(3))
    (tmp_path / "empty").touch()
    for name in ("text", "other", "tensor", "array.npz", "empty"):
        with pytest.raises(ValueError, match=r"no saved memory.*give a file that save"):
            AssociativeMemory.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        AssociativeMemory.load(tmp_path / "nowhere")


def test_what_is_not_stored_well_is_said():
    memory = AssociativeMemory((5, 6))
    with pytest.warns(MemoryWarning, match=r"8 of 8 not stored well: image 0 \(.*Take more passes"):
        stored = memory.store(pictures(8), passes=1)
    assert stored.badly == tuple(range(8))
    assert not stored.well


def test_stored_names_the_bad_ones_only():
    stored = Stored(clean=(0.0, 0.1, 0.0, 0.0), corrupted=(0.0, 0.1, 0.03, 0.02))
    assert stored.badly == (1, 2)
    assert "2 of 4 not stored well: image 1 (10.0%, 10.0%), 2 (0.0%, 3.0%)." in str(stored)
    assert str(Stored((0.0,), (0.01,))).startswith("1 stored; with half of its set pixels cleared, at most 1.0%")
    assert Stored((float("nan"),), (float("nan"),)).badly == (0,)


def test_a_recall_that_does_not_settle_is_said(memory: AssociativeMemory):
    with pytest.warns(MemoryWarning, match="3 of 3 recalls did not settle in 1 updates: image 0, 1, 2"):
        memory.recall(pictures(), updates=1)


def test_bad_input_is_refused(memory: AssociativeMemory):
    with pytest.raises(ValueError, match=r"shape \(5, 6\); give \(count, 5, 6\)"):
        memory.recall(pictures()[0])
    with pytest.raises(ValueError, match=r"shape \(0, 5, 6\); give"):
        memory.store(pictures()[:0])
    with pytest.raises(ValueError, match="other values than 0 and 1; threshold them first"):
        memory.recall(pictures() * 0.5)
    with pytest.raises(ValueError, match="other values than 0 and 1"):
        memory.recall(torch.full((1, 5, 6), torch.nan))
    with pytest.raises(ValueError, match=r"lengths of an image's sides, as \(12, 12\); got \(0, 3\)"):
        AssociativeMemory((0, 3))
    with pytest.raises(RuntimeError, match="nothing is stored yet; call store"):
        AssociativeMemory((5, 6)).recall(pictures())
    with pytest.raises(RuntimeError, match="nothing is stored yet"):
        AssociativeMemory((5, 6)).save("nowhere")


def test_bad_input_leaves_what_was_stored(memory: AssociativeMemory):
    with pytest.raises(ValueError, match="other values"):
        memory.store(pictures() + 1)
    assert torch.equal(memory.recall(pictures()), pictures().bool())


def test_the_glyphs_of_the_example_are_of_one_size():
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "associative_memory.py"))
    drawn = [example["parsed"](glyph) for glyph in example["GLYPHS"].values()]
    assert {len(glyph) for glyph in drawn} == {len(line) for glyph in drawn for line in glyph} == {12}


@pytest.mark.slow
def test_the_example(capsys: pytest.CaptureFixture[str]):
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "associative_memory.py"))
    images, _, recalled = example["main"]()
    assert torch.equal(recalled, images.bool())
    assert "house: stored, damaged, recalled" in capsys.readouterr().out


def test_refused_argument_leaves_what_is_stored():
    memory = AssociativeMemory((2, 2), hidden=16)
    images = torch.tensor([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    memory.store(images)
    with pytest.raises(ValueError, match="passes"):
        memory.store(images, passes=0)
    assert memory.recall(images).int().tolist() == images.tolist()


def test_stores_lists_of_tensors_without_grad_and_in_any_default_dtype():
    memory = AssociativeMemory((2, 2), hidden=16)
    images = [torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True), torch.tensor([[0.0, 1.0], [1.0, 0.0]])]
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", MemoryWarning)  # two images of four pixels: how well is not the question here
            memory.store(images)
        assert memory.recall(images).shape == (2, 2, 2)
    finally:
        torch.set_default_dtype(torch.float32)


def test_file_that_does_not_fit_together(tmp_path):
    torch.save({"format": FORMAT, "shape": [2, 2], "hidden": 16, "seed": 0, "weights": {}}, tmp_path / "bad.pt")
    with pytest.raises(ValueError, match="does not fit together"):
        AssociativeMemory.load(tmp_path / "bad.pt")
