"""Run by torchrun in two processes (tests/test_data_parallel.py): something fails on the second rank alone."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_gather_single_autograd
from torch.nn.parallel import DistributedDataParallel

import steadygrad as sg


def data_parallel():
    """The weights of all ranks are the same, but only the second rank's inputs have no steady state."""
    torch.manual_seed(0)
    cell = nn.RNNCell(4, 4, nonlinearity="relu")
    with torch.no_grad():
        cell.weight_hh.copy_(2 * torch.eye(4))
    model = DistributedDataParallel(sg.Equilibrium(cell, on_failure="raise"))
    sign = 100.0 if dist.get_rank() else -100.0
    with torch.no_grad():
        cell.weight_ih.fill_(1.0)
    for _ in range(3):
        model(torch.full((2, 4), sign)).sum().backward()


def divided():
    """F raises on the second rank, in the third step, while the first is waiting for its numbers."""
    calls = 0

    def update(h):
        nonlocal calls
        calls += 1
        if dist.get_rank() and calls == 3:
            raise KeyError("the third call of F on rank 1")
        return 0.5 * all_gather_single_autograd(h, 0, dist.group.WORLD)[:4] + 1

    sg.steady_state(update, torch.zeros(4), group=dist.group.WORLD)


if __name__ == "__main__":
    dist.init_process_group("gloo")  # with torch's own time limit of half an hour: nothing below waits for it
    {"data_parallel": data_parallel, "divided": divided}[sys.argv[1]]()
    dist.destroy_process_group()
