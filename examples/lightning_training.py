"""Training with Lightning, the certificate in the log beside the loss.

Nothing special is needed: the layer is an nn.Module. `on_after_backward` logs the estimated error of the
adjoint, so that a gradient that goes wrong shows in the same curves as the loss. And it does: a GRU that
learns to tell two spirals apart drifts to ρ(J) ≈ 1, where 20 terms of the Neumann series are not enough; the
loss falls all the same. With a penalty on ‖J‖ the gradient stays what it claims to be.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import steadygrad as sg

NEEDED = "lightning is not installed; for this example: pip install -c constraints.txt lightning"


@dataclass
class Logged:
    """Columns of Lightning's own CSV log."""

    loss: list[float]
    error: list[float]


def classifier(penalised: bool) -> nn.Module:
    import lightning

    class Spirals(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.encode, self.decode = nn.GRUCell(16, 32), nn.Sequential(nn.Linear(2, 16), nn.Tanh()), nn.Linear(32, 2)
            # The log tells what fails, so no warnings.
            search = sg.Picard(max_steps=200, rtol=1e-5)
            self.layer = sg.Equilibrium(self.cell, forward=search, gradient="neumann-rbp", on_failure="ignore")

        def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
            x = self.encode(batch[0])
            h = self.layer(x)
            loss = nn.functional.cross_entropy(self.decode(h), batch[1])
            self.log("loss", loss)
            if not penalised:
                return loss
            size = sg.penalty.spectral(lambda h, x: self.cell(x, h), h.detach(), x, batch_dims=1, seed=number)
            return loss + 5 * torch.relu(size - 0.7)

        def on_after_backward(self) -> None:
            solution = self.layer.solution
            assert solution is not None
            assert solution.adjoint is not None
            self.log("adjoint_error", solution.adjoint.error_estimate)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    return Spirals()


def spirals(count: int) -> DataLoader[tuple[Tensor, ...]]:
    side = torch.arange(count) % 2
    turn = 3 * torch.rand(count).sqrt()
    angle = 2 * turn + 3.1416 * side
    x = turn.unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)
    return DataLoader(TensorDataset(x, side), batch_size=50, shuffle=True)


def train(penalised: bool, small: bool) -> Logged:
    import lightning
    from lightning.pytorch.loggers import CSVLogger

    torch.manual_seed(0)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers, and what torch deprecates in it
        log = CSVLogger(folder, name="spirals")
        epochs = 1 if small else 12
        trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", logger=log, log_every_n_steps=1, **quiet)
        trainer.fit(classifier(penalised), spirals(100 if small else 500))
        lines = [line.split(",") for line in (Path(log.log_dir) / "metrics.csv").read_text().splitlines()]
    column = {name: [float(line[place]) for line in lines[1:] if line[place]] for place, name in enumerate(lines[0])}
    return Logged(column["loss"], column["adjoint_error"])


def main(small: bool = False) -> dict[str, Logged] | None:
    try:
        import lightning  # noqa: F401
    except ImportError:
        print(NEEDED)
        return None
    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)
    runs = {"as it is": train(False, small), "with the penalty": train(True, small)}
    for name, logged in runs.items():
        ended = sum(logged.error[-10:]) / len(logged.error[-10:])
        print(f"{name}: loss {logged.loss[0]:.3f} → {logged.loss[-1]:.3f}; estimated error of the adjoint at the end {ended:.0e}")
    return runs


def draw(runs: dict[str, Logged], path: str) -> None:
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3), layout="constrained")
    for (name, logged), colour, line in zip(runs.items(), ("#D55E00", "#0072B2"), ("--", "-"), strict=True):
        left.plot(logged.loss, color=colour, linestyle=line, linewidth=1, label=name)
        right.semilogy(logged.error, color=colour, linestyle=line, linewidth=1, label=name)
    left.set(title="Loss, from Lightning's log", xlabel="step", ylabel="cross-entropy", ylim=(0, None))
    right.set(title="Estimated error of the adjoint, same log", xlabel="step", ylabel="relative error")
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    from _command import run

    run(main, draw, small="one epoch")
