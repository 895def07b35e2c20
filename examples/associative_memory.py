"""A memory for your own pictures: store small glyphs, damage them, and get them back.

The memory is a continuous Hopfield network that learns by the implicit gradient at its steady state; see
docs/experiments/hopfield.md. Replace SHEETS by pictures of yours: any shape, zeros and ones.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from steadygrad.models import AssociativeMemory, corrupt

SHEETS = {
    ("house", "key", "heart"): """
    .....##.....  ..####......  ............
    ....####....  .##..##.....  ..###..###..
    ...##..##...  .#....#.....  .#####.#####
    ..##....##..  .#....#.....  .###########
    .##......##.  .##..##.....  .###########
    ############  ..####......  ..#########.
    .#........#.  ....##......  ..#########.
    .#..##....#.  .....##.....  ...#######..
    .#..##.##.#.  ......##....  ....#####...
    .#.....##.#.  .......###..  .....###....
    .#.....##.#.  .......###..  ......#.....
    .##########.  ........###.  ............""",
    ("anchor", "arrow", "moon"): """
    ....####....  ............  ....#####...
    ....#..#....  .......#....  ..####......
    ....####....  .......##...  .####.......
    .....##.....  .......###..  .###........
    ..########..  ###########.  ####........
    .....##.....  ############  ####........
    .....##.....  ############  ####........
    #....##....#  ###########.  ####........
    ##...##...##  .......###..  .###........
    .##..##..##.  .......##...  .####.......
    ..########..  .......#....  ..####......
    ....####....  ............  ....#####...""",
}
"""Names, and below them the pictures, side by side."""
GLYPHS = {
    name: "\n".join(line.split()[column] for line in sheet.strip().splitlines())
    for names, sheet in SHEETS.items()
    for column, name in enumerate(names)
}


def parsed(glyph: str) -> list[list[int]]:
    return [[int(mark == "#") for mark in line.strip()] for line in glyph.split()]


def beside(*pictures: Tensor) -> str:
    """Pictures next to each other, as text."""
    rows = zip(*(picture.tolist() for picture in pictures), strict=True)
    return "\n".join("    ".join("".join("█" if pixel else "·" for pixel in line) for line in row) for row in rows)


def progress(done: int, total: int, note: str) -> None:
    end = "\n" if done == total else "\r"
    if sys.stdout.isatty() or done == total:
        print(f"learning: pass {done} of {total}, {note}", end=end, flush=True)


def main(small: bool = False) -> list[Tensor]:
    """Store, damage, recall; what was stored, what was left of it, and what came back."""
    torch.set_num_threads(1)
    images = torch.tensor([parsed(glyph) for glyph in GLYPHS.values()])[: 2 if small else None]
    memory = AssociativeMemory(images.shape[1:])
    print(memory.store(images, passes=60 if small else 200, report=progress))

    damaged = corrupt(images.flatten(1), seed=1).view_as(images)  # half of the set pixels of each are cleared
    with tempfile.TemporaryDirectory() as folder:
        memory.save(Path(folder) / "memory.pt")
        recalled = AssociativeMemory.load(Path(folder) / "memory.pt").recall(damaged)
    for name, *pictures in zip(GLYPHS, images, damaged, recalled, strict=False):
        print(f"\n{name}: stored, damaged, recalled\n{beside(*pictures)}")
    wrong, lost = (float((found != images).float().mean()) for found in (recalled, damaged))
    print(f"\n{wrong:.1%} of all pixels came back wrong; {lost:.1%} had been damaged.")
    return [images, damaged, recalled]


def draw(stages: list[Tensor], path: str) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, len(stages[0]), figsize=(9, 4.6), layout="constrained")
    for row, title, pictures in zip(axes, ("stored", "damaged", "recalled"), stages, strict=True):
        for axis, name, picture in zip(row, GLYPHS, pictures, strict=False):
            axis.imshow(picture.numpy(), cmap="cividis", interpolation="nearest")
            axis.set(xticks=[], yticks=[], title=name if title == "stored" else "")
        row[0].set_ylabel(title)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="two glyphs")
