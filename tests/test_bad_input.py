"""Bad input gets a clear error, and nothing is lost."""

import collections

import numpy
import pytest
import torch

import steadygrad as sg
from problems import tanh_problem
from steadygrad.iteration.goal import FEW_CHEAP
from steadygrad.method import check_number

H = torch.zeros(12, 4)
RAGGED = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)


@pytest.mark.parametrize(
    ("update", "h0", "error", "match"),
    [
        (lambda h: h[:, :3], H, ValueError, r"shape \(12, 3\) for a state of shape \(12, 4\).*same shape"),
        (lambda h: h.double(), H, TypeError, "float64 for a state of torch.float32.*keep the dtype"),
        (lambda h: h.to("meta"), H, ValueError, "on meta for a state on cpu"),
        (lambda h: None, H, TypeError, "returned NoneType.*forget to return"),
        (lambda h: (h, h), H, TypeError, r"returned \(tensor, tensor\) for a state of structure tensor"),
        (lambda h: [*h], (H, H), TypeError, r"returned \[tensor, tensor\] for a state of structure \(tensor, tensor\)"),
        (lambda h: {"b": h["a"]}, {"a": H}, TypeError, "'b'.*structure.*'a'"),
        (lambda h: (h[0], None), (H, H), TypeError, "NoneType"),
        (lambda h: h * float("nan"), H, sg.SteadyStateError, "inf or NaN on its first call.*h0 is finite"),
        (lambda h: h, H * float("nan"), sg.SteadyStateError, "h0 is not finite"),
        (lambda h: h.add_(1), H, sg.SteadyStateError, "in place.*clone"),
        (lambda h: (h[0], h[1].mul_(2)), (H, H), sg.SteadyStateError, "in place"),
        (lambda h: h, torch.zeros(0), ValueError, "empty"),
        (lambda h: h, [], ValueError, "no tensor"),
        (lambda h: h, torch.zeros(3, dtype=torch.long), TypeError, r"int64.*\.float\(\)"),
        (lambda h: h, torch.zeros(3, dtype=torch.complex64), TypeError, "complex64.*view_as_real"),
        (lambda h: h, (H, H.double()), TypeError, "share dtype"),
        (lambda h: h, 3.0, TypeError, "got float"),
        (lambda h: h, (H, "x"), TypeError, "got str"),
        (lambda h: h, torch.eye(3).to_sparse(), TypeError, "dense tensor"),
        (lambda h: h, torch.zeros(3, device="meta"), TypeError, "meta device has no values.*real device"),
        (lambda h: h, torch.zeros(3).to(torch.float8_e4m3fn), TypeError, r"float8_e4m3fn cannot be iterated.*\.float\(\)"),
        (lambda h: h, RAGGED, TypeError, "dense tensor; got a nested tensor.*to_padded_tensor"),
        (lambda h: RAGGED, H, TypeError, "returned a nested tensor.*to_padded_tensor"),
        (lambda h: h.to_sparse(), H, TypeError, r"returned a tensor of layout torch.sparse_coo.*to_dense\(\)"),
        ("tanh", H, TypeError, "update must be callable"),
    ],
)
def test_updates_and_states(update, h0, error, match):
    with pytest.raises(error, match=match):
        sg.steady_state(update, h0)


def test_in_place_leaves_the_users_tensor_alone():
    h0 = torch.ones(3)
    with pytest.raises(sg.SteadyStateError, match="in place"):
        sg.steady_state(lambda h: h.mul_(2), h0)
    assert torch.equal(h0, torch.ones(3))


def test_in_place_in_inference_mode():
    with torch.inference_mode(), pytest.raises(sg.SteadyStateError, match="in place"):
        sg.steady_state(lambda h: h.add_(1), torch.ones(3))


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: sg.Picard(max_steps=-1), ValueError, "max_steps must be at least 1; got -1"),
        (lambda: sg.Picard(max_steps=1.5), TypeError, "whole number"),
        (lambda: sg.Picard(max_steps=True), TypeError, "whole number"),
        (lambda: sg.Picard(rtol=-1e-3), ValueError, "rtol must be at least 0"),
        (lambda: sg.Picard(damping=1.0), ValueError, "damping must be"),
        (lambda: sg.Picard(atol=-1.0), ValueError, "atol must not be negative"),
        (lambda: sg.Picard(rtol=0, atol=1e-3), ValueError, "atol would be ignored"),
        (lambda: sg.Neumann(steps=-1), ValueError, "steps must be at least 0; got -1"),
        (lambda: sg.Neumann(steps=3, rtol=1e-3), ValueError, "would be ignored"),
        (lambda: sg.NormalCG(rtol=2.0), ValueError, "between 0 and 1"),
        (lambda: sg.NormalCG(ridge=-1.0), ValueError, "ridge must not be negative"),
        (lambda: sg.TBPTT(steps=0), ValueError, "steps must be at least 1"),
        (lambda: sg.Implicit("cg"), TypeError, "Implicit takes a solver"),
        (lambda: sg.Implicit(sg.Neumann(), initial="ones"), ValueError, "initial must be"),
        (lambda: sg.Implicit(sg.Neumann(), initial="uniform"), ValueError, "would be ignored"),
        (lambda: sg.Implicit(sg.NormalCG(), seed=3), ValueError, "would be ignored"),
    ],
)
def test_settings(make, error, match):
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize(
    ("value", "limits", "error", "match"),
    [
        ("1e-3", {}, TypeError, "rtol must be a number; got '1e-3'"),
        (True, {}, TypeError, "must be a number; got True"),
        (None, {}, TypeError, "must be a number; got None"),
        (torch.tensor(0.1), {}, TypeError, "must be a number; got tensor"),
        (1j, {}, TypeError, "must be a number"),
        (float("nan"), {"least": 0}, ValueError, "must be finite; got nan"),
        (float("inf"), {}, ValueError, "must be finite; got inf"),
        (-1e-9, {"least": 0}, ValueError, "must not be negative; got -1e-09"),
        (0.5, {"least": 1}, ValueError, "must be at least 1; got 0.5"),
        (0, {"above": 0}, ValueError, "must be above 0; got 0"),
        (1.0, {"least": 0, "below": 1}, ValueError, "must be below 1; got 1.0"),
    ],
)
def test_numbers(value, limits, error, match):
    with pytest.raises(error, match=match):
        check_number("rtol", value, **limits)


@pytest.mark.parametrize("value", [0, 0.5, 1e-300, numpy.float32(0.5), numpy.float64(0.5), numpy.int64(0)])
def test_numbers_that_are_fine(value):
    check_number("rtol", value, least=0, below=1)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"gradient": "nuemann"}, ValueError, "Did you mean 'neumann-rbp'.*Known: auto, rbp"),
        ({"gradient": "CG-RBP"}, ValueError, "Did you mean 'cg-rbp'"),
        ({"gradient": "zzz"}, ValueError, "unknown gradient 'zzz'. Known"),
        ({"gradient": sg.Neumann(steps=3)}, TypeError, "shorthand or an object such as Implicit"),
        ({"forward": "picard"}, TypeError, "forward must be a solver"),
        ({"on_failure": "print"}, ValueError, "on_failure must be"),
        ({"batch_dims": 3}, ValueError, r"batch_dims=3, but the state has a tensor of shape \(3, 12\)"),
        ({"batch_dims": -1}, ValueError, "batch_dims must be at least 0"),
        ({"derivatives": 0}, ValueError, "derivatives must be at least 1"),
        ({"derivatives": 2, "gradient": "neumann-rbp"}, ValueError, "derivatives=2 needs an adjoint solved to a tolerance"),
        ({"derivatives": 2, "gradient": "tbptt"}, ValueError, "TBPTT truncates the first derivative"),
        ({"iterates": (0,)}, ValueError, "a step of iterates must be at least 1"),
        ({"iterates": (3,), "gradient": "tbptt"}, ValueError, "no gradient for iterates"),
        ({"forward": sg.Anderson(), "gradient": "bptt"}, TypeError, "forward must be Picard"),
        ({"group": object()}, TypeError, "group must be a torch.distributed.ProcessGroup"),
        ({"warm": object()}, TypeError, "warm must be an earlier Solution; got object"),
    ],
)
def test_options(options, error, match):
    F, _, _, h0 = tanh_problem()
    with pytest.raises(error, match=match):
        sg.steady_state(F, h0, **options)


def test_nan_on_the_way():
    calls = 0

    def poisoned(h):
        nonlocal calls
        calls += 1
        return 0.5 * h + (float("nan") if calls == 5 else 1.0)

    with pytest.warns(sg.SteadyStateWarning, match="NONFINITE.*Check inputs"):
        solution = sg.steady_state(poisoned, torch.zeros(3))
    assert solution.status is sg.Status.NONFINITE
    assert 5 <= solution.steps <= 5 + FEW_CHEAP  # seen at the next look


def test_nan_can_be_ignored():
    solution = sg.steady_state(lambda h: h * float("nan"), torch.zeros(3), on_failure="ignore")
    assert solution.status is sg.Status.NONFINITE


def test_nan_cotangent_is_reported():
    F, W, _, h0 = tanh_problem()
    solution = sg.steady_state(F, h0)
    with pytest.warns(sg.SteadyStateWarning, match="NONFINITE"):
        (solution.value.sum() * float("nan")).backward()


def test_an_error_in_f_passes_through():
    def broken(h):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sg.steady_state(broken, H)


def test_named_tuples_survive():
    State = collections.namedtuple("State", "h c")
    value = sg.steady_state(lambda s: State(0.5 * s.c + 1, 0.5 * s.h), State(torch.zeros(2), torch.zeros(2))).value
    assert isinstance(value, State)
