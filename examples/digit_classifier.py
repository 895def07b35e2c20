"""Digits by a convolutional layer at equilibrium: one small cell, as deep as it needs to be, trained without
unrolling.

`sg.models.EquilibriumClassifier` is h ← tanh(conv(h) + encode(x)) on 8 channels of 14 × 14 and a linear read-out; the digits are
the 10,000 in the package. Each step leaves its certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

import steadygrad as sg
from steadygrad.models import EquilibriumClassifier


@dataclass
class Course:
    """What was seen in training, an entry a step."""

    loss: list[float] = field(default_factory=list[float])
    steps: list[int] = field(default_factory=list[int])
    residual: list[float] = field(default_factory=list[float])
    accuracy: float = 0.0


def main(small: bool = False) -> Course:
    torch.manual_seed(0)
    count, epochs, test = (200, 2, 200) if small else (5000, 6, 2000)
    mnist = sg.datasets.mnist()
    images, labels = mnist.images.unsqueeze(1).float() / 255, mnist.labels
    model, course = EquilibriumClassifier((1, 28, 28), classes=10), Course()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(count).split(50):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            solution = model.layer.solution
            assert solution is not None
            assert solution.adjoint is not None
            course.loss.append(loss.item())
            course.steps.append(solution.steps)
            course.residual.append(solution.adjoint.residual)
    with torch.no_grad():
        guessed = torch.cat([model(part).argmax(1) for part in images[-test:].split(200)])
    course.accuracy = (guessed == labels[-test:]).float().mean().item()
    print(f"test accuracy {course.accuracy:.1%} on {test} digits after {len(course.loss)} steps on {count}; ", end="")
    print(f"the worst adjoint residual of all steps {max(course.residual):.1e}")
    return course


def draw(course: Course, path: str) -> None:
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(10, 3), layout="constrained")
    left.plot(course.loss, color="#0072B2", linewidth=0.8)
    left.set(title=f"Loss ({course.accuracy:.1%} right on the test)", xlabel="step", ylabel="cross-entropy", yscale="log")
    middle.plot(course.steps, color="#D55E00", linewidth=0.8)
    middle.set(title="Depth that the equilibrium took", xlabel="step", ylabel="updates of the state", ylim=(0, None))
    right.plot(course.residual, color="#009E73", linewidth=0.8)
    right.set(title="The certificate", xlabel="step", ylabel="adjoint residual", yscale="log")
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="a few seconds instead of a minute")
