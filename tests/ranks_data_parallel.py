"""Run by torchrun in two processes (tests/test_data_parallel.py): DDP and FSDP2 around a model with an Equilibrium."""

import sys
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import steadygrad as sg
from processes import leave, run_checks

COUNTED = sg.Picard(max_steps=60, rtol=0)
TO_TOLERANCE = sg.Picard(max_steps=400, rtol=1e-10)
METHODS = {
    **{name: {"gradient": name} for name in (
        "auto", "rbp", "cg-rbp", "neumann-rbp", "one-step", "lsqr", "gmres", "bicgstab", "dense", "phantom", "tbptt",
        "bptt",
    )},
    "anderson": {"gradient": sg.Implicit(sg.Anderson(rtol=1e-10))},
    "broyden": {"gradient": sg.Implicit(sg.Broyden(rtol=1e-10))},
    "artbp": {"gradient": sg.ARTBP(seed=1), "forward": COUNTED},
    "checkpoints": {"gradient": sg.BPTT(checkpoints=4)},
    "sqrt": {"gradient": sg.BPTT(memory="sqrt")},
    "reversible": {"gradient": sg.BPTT(), "forward": sg.Reversible(max_steps=200, rtol=1e-9)},
    "twice": {"derivatives": 2},
}  # fmt: skip
ROWS = 8


class Cell(nn.Module):
    def __init__(self, gain=0.6):
        super().__init__()
        self.hidden, self.input = nn.Linear(12, 12), nn.Linear(5, 12)
        with torch.no_grad():
            self.hidden.weight.mul_(gain)

    def forward(self, x, h=None):
        h = x.new_zeros(x.shape[0], 12) if h is None else h
        return torch.tanh(self.hidden(h) + self.input(x))


def model(**options):
    torch.manual_seed(0)
    layer = sg.Equilibrium(Cell(), **{"forward": TO_TOLERANCE, "on_failure": "raise", **options})
    return nn.Sequential(nn.Linear(5, 5), layer, nn.Linear(12, 3))


def data():
    """Inputs of which the second half is harder."""
    torch.manual_seed(1)
    x = torch.randn(ROWS, 5)
    x[: ROWS // 2] *= 20  # saturated: these converge in few steps
    return x, torch.randint(0, 3, (ROWS,))


def half():
    first = dist.get_rank() * ROWS // 2
    return slice(first, first + ROWS // 2)


def trained(network, x, y, steps=3, layer=None):
    """The losses over a few steps of SGD, averaged over ranks where x is a part, and the steps of the solves."""
    optimiser, losses, counts = torch.optim.SGD(network.parameters(), lr=0.3), [], []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimiser.step()
        found = loss.detach().clone()
        if len(x) < ROWS:
            dist.all_reduce(found)
            found /= 2
        losses.append(found.item())
        if layer is not None:
            counts.append(layer.solution.steps)
    return losses, counts


def same(a, b, tolerance=1e-7):
    assert all(abs(p - q) <= tolerance * abs(q) for p, q in zip(a, b, strict=True)), (a, b)


def check_data_parallel(options, **modes):
    x, y = data()
    whole = model(**options)
    losses, _ = trained(whole, x, y)
    part = model(**options)
    found, _ = trained(DistributedDataParallel(part, **modes), x[half()], y[half()])
    same(found, losses)
    for p, q in zip(part.parameters(), whole.parameters(), strict=True):
        assert float((p - q).detach().norm()) <= 1e-6 * float(q.detach().norm())


def check_ranks_take_different_numbers_of_steps():
    x, y = data()
    part = model()
    _, counts = trained(DistributedDataParallel(part), x[half()], y[half()], layer=part[1])
    everybody = [None, None]
    dist.all_gather_object(everybody, counts)
    assert everybody[0] != everybody[1], everybody


def check_warm_starts():
    x, y = data()
    losses, cold = trained(model(), x, y)
    part = model(warm_start=True)
    found, counts = trained(DistributedDataParallel(part), x[half()], y[half()], layer=part[1])
    same(found, losses)
    assert counts[-1] < counts[0], counts


def check_second_backward_and_no_sync():
    """Two micro-batches, the first without an exchange, add up to the batch."""
    x, y = data()
    whole = model()
    nn.functional.cross_entropy(whole(x), y).backward()
    part = model()
    wrapped = DistributedDataParallel(part)
    here, there = x[half()].chunk(2), y[half()].chunk(2)
    with wrapped.no_sync():
        (0.5 * nn.functional.cross_entropy(wrapped(here[0]), there[0])).backward()
    (0.5 * nn.functional.cross_entropy(wrapped(here[1]), there[1])).backward()
    for p, q in zip(part.parameters(), whole.parameters(), strict=True):
        assert float((p.grad - q.grad).norm()) <= 1e-7 * float(q.grad.norm())


def check_fully_sharded(gradient, what, **options):
    x, y = data()
    losses, _ = trained(model(gradient=gradient, **options), x, y)
    part, mesh = model(gradient=gradient, **options), init_device_mesh("cpu", (2,))
    if what == "layer":
        fully_shard(part[1], mesh=mesh)
    fully_shard(part, mesh=mesh)
    found, _ = trained(part, x[half()], y[half()])
    same(found, losses)
    assert all(type(p).__name__ == "DTensor" for p in part.parameters())


def check_looks_ahead(wrap):
    """A state that is not near: the backward pass evaluates F again, with the parameters that it had."""
    x, y = (part[half()] for part in data())
    shifts = []
    for wrapped in (lambda network: network, wrap):
        network = model(forward=sg.Picard(max_steps=500, rtol=1e-2), on_failure="ignore")
        nn.functional.cross_entropy(wrapped(network)(x), y).backward()
        shifts.append(network[1].solution.adjoint.shift)
    same(shifts[:1], shifts[1:])


def sharded(network):
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(network[1], mesh=mesh)
    return fully_shard(network, mesh=mesh)


def check_fully_sharded_cell():
    """Each call of such a cell is an exchange, and ranks that take different numbers of steps would wait for each other."""
    part, x = model(), data()[0]
    fully_shard(part[1].cell, mesh=init_device_mesh("cpu", (2,)))
    with pytest.raises(sg.SteadyStateError, match="fully_shard the layer"):
        part(x)
    # Through a closure nobody can see it; with equal counts it works, but for products with J, as torch frees the parameters.
    cell, forward = part[1].cell, COUNTED

    def solved(gradient):
        return sg.steady_state(lambda h: cell(x, h), torch.zeros(ROWS, 12), forward=forward, gradient=gradient).value

    solved("neumann-rbp").sum().backward()
    value = solved(sg.Implicit(sg.LSQR(steps=5)))
    with pytest.raises(sg.SteadyStateError, match="Shard the Equilibrium layer"):
        value.sum().backward()


SHARDED = ["auto", "neumann-rbp", "lsqr", "bptt", "phantom"]
CHECKS = {
    **{f"DDP {name}": lambda options=options: check_data_parallel(options) for name, options in METHODS.items()},
    "DDP static graph": lambda: check_data_parallel({}, static_graph=True),
    "DDP unused parameters": lambda: check_data_parallel({}, find_unused_parameters=True),
    "DDP different steps": check_ranks_take_different_numbers_of_steps,
    "DDP warm starts": check_warm_starts,
    "DDP micro-batches": check_second_backward_and_no_sync,
    **{f"FSDP2 {name}": lambda name=name: check_fully_sharded(name, "layer") for name in SHARDED},
    "FSDP2 checkpoints": lambda: check_fully_sharded(sg.BPTT(checkpoints=4), "layer"),
    "FSDP2 warm": lambda: check_fully_sharded("gmres", "layer", warm_start=True),
    "FSDP2 around the model": lambda: check_fully_sharded("auto", "model"),
    "FSDP2 around the cell": check_fully_sharded_cell,
    "DDP looks ahead": lambda: check_looks_ahead(DistributedDataParallel),
    "FSDP2 looks ahead": lambda: check_looks_ahead(sharded),
}


def main(folder):
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("error")
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    run_checks(CHECKS, folder, dist.get_rank())
    leave()


if __name__ == "__main__":
    main(sys.argv[1])
