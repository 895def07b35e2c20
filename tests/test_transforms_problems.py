"""Under vmap every entry is a problem with its own stop and certificate; what cannot be right is refused, and says what to do."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, vmap

import steadygrad as sg

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")

F64 = {"dtype": torch.float64}
LONG = sg.Picard(max_steps=5000, rtol=1e-12)
RATES = torch.tensor([0.1, 0.5, 0.99], **F64)


class Kept:
    """h = a h + 1, solved; keeps its solutions."""

    def __init__(self, **options):
        self.options = {"forward": LONG, **options}
        self.solutions = []

    def __call__(self, a):
        self.solutions.append(sg.steady_state(lambda h: a * h + 1, torch.zeros(2, **F64), **self.options))
        return self.solutions[-1].value.sum()

    @property
    def last(self):
        return self.solutions[-1]


def test_each_entry_has_its_own_stop():
    """A vmap is a batch, bit for bit; and each entry what it is alone, though one needs a hundred times the steps of another."""
    together = vmap(Kept())(RATES)
    rows = sg.steady_state(lambda h: RATES[:, None] * h + 1, torch.zeros(3, 2, **F64), batch_dims=1, forward=LONG)
    assert torch.equal(together, rows.value.sum(1))
    torch.testing.assert_close(together, torch.stack([Kept()(a) for a in RATES]), rtol=1e-9, atol=0)


def test_each_entry_has_its_own_certificate():
    kept = Kept(on_failure="ignore", forward=sg.Picard(200, 1e-9))
    vmap(grad(kept))(torch.tensor([0.5, 0.999, 2.0], **F64))
    statuses = kept.last.problems.statuses
    assert statuses[0] is sg.Status.CONVERGED
    assert statuses[1] is sg.Status.MAX_STEPS
    assert statuses[2] is sg.Status.DIVERGED
    assert kept.last.converged.tolist() == [True, False, False]
    assert kept.last.adjoint.problems.batch == (3,)
    assert kept.last.adjoint.converged.tolist() == [True, True, True]


def test_converged_speaks_of_one_entry_inside_and_of_all_outside():
    kept = Kept(on_failure="ignore")

    def value(a):
        found = kept(a)
        assert kept.last.converged.shape == ()
        return found, kept.last.converged

    rates = torch.tensor([0.5, 3.0], **F64)
    assert vmap(value)(rates)[1].tolist() == [True, False]
    assert vmap(grad(value, has_aux=True))(rates)[1].tolist() == [True, False]
    assert vmap(vmap(value))(rates.expand(3, 2))[1].tolist() == [[True, False]] * 3
    assert kept.last.converged.tolist() == [[True, False]] * 3


def test_failures_are_reported():
    with pytest.warns(sg.SteadyStateWarning, match="1 of 2 problems"):
        vmap(Kept())(torch.tensor([0.5, 3.0], **F64))
    with pytest.raises(sg.SteadyStateError, match="DIVERGED"):
        vmap(Kept(on_failure="raise"))(torch.tensor([0.5, 3.0], **F64))
    kept = Kept(gradient=sg.Implicit(sg.Neumann(max_steps=5, rtol=1e-8)))
    with pytest.warns(sg.SteadyStateWarning, match=r"adjoint solve by Neumann.*MAX_STEPS"):
        grad(kept)(RATES[1])
    with pytest.warns(sg.SteadyStateWarning, match=r"Neumann.*MAX_STEPS"):
        jvp(kept, (RATES[1],), (RATES[1],))
    assert not kept.last.tangent.converged


def test_an_entry_without_a_finite_state_does_not_spoil_the_others():
    def value(w, x):
        return sg.steady_state(
            lambda h: w * h * h + x, torch.zeros((), **F64), forward=sg.Picard(80, 0.0), on_failure="ignore"
        ).value

    def root(w, x):
        return (1 - (1 - 4 * w * x).sqrt()) / (2 * w)

    def loss(w):
        return vmap(value, (None, 0))(w, x)[[0, 2]].sum()

    w, x = torch.ones((), **F64), torch.tensor([0.1, 3.0, 0.2], **F64)
    found = vmap(value, (None, 0))(w, x)
    torch.testing.assert_close(found[[0, 2]], root(w, x[[0, 2]]))
    assert not found[1].isfinite()
    slopes = vmap(grad(value, argnums=1), (None, 0))(w, x)
    torch.testing.assert_close(slopes[[0, 2]], vmap(grad(root, argnums=1), (None, 0))(w, x[[0, 2]]))
    torch.testing.assert_close(grad(loss)(w), grad(lambda w: root(w, x[[0, 2]]).sum())(w))  # of what all entries share


def test_the_tangent_has_its_certificate():
    kept = Kept(gradient="gmres")
    _, tangent = jvp(kept, (RATES[1],), (torch.ones((), **F64),))
    assert tangent.item() == pytest.approx(2 / (1 - 0.5) ** 2)
    assert kept.last.tangent.converged
    assert kept.last.tangent.residual < 1e-9
    assert kept.last.tangent.products > 0
    assert kept.last.tangent.solver == "GMRES()"
    assert kept.last.adjoint is None


def test_forward_mode_certificate_with_dual_numbers():
    kept = Kept()
    with forward_ad.dual_level():
        found = kept(forward_ad.make_dual(RATES[1], torch.ones((), **F64)))
        assert forward_ad.unpack_dual(found).tangent.item() == pytest.approx(8)
    assert kept.last.tangent.converged


def test_a_jacobian_costs_no_more_forward_steps():
    """The basis of jacfwd and jacrev is many right-hand sides, not many solves."""
    calls = []

    def value(x):
        def update(h):
            calls.append(h)
            return 0.5 * h.sin() + x

        return sg.steady_state(update, torch.zeros(6, **F64), forward=sg.Picard(20, 0.0)).value

    x = torch.ones(6, **F64)
    for transform in (jacfwd, jacrev):
        calls.clear()
        transform(value)(x)
        assert len(calls) <= 20 + 5
        assert all(h.shape == (6,) for h in calls)


def test_batch_dims_within_vmap():
    a = torch.rand(3, 2, **F64) / 2

    def value(a):
        return sg.steady_state(lambda h, a: a[:, None] * h + 1, torch.zeros(2, 4, **F64), a, batch_dims=1, forward=LONG)

    assert vmap(lambda a: value(a).converged)(a).shape == (3, 2)
    torch.testing.assert_close(vmap(lambda a: value(a).value[:, 0])(a), 1 / (1 - a))
    torch.testing.assert_close(vmap(grad(lambda a: value(a).value[:, 0].sum()))(a), 1 / (1 - a) ** 2)
    with pytest.raises(ValueError, match="batch_dims=1 every tensor"):
        vmap(lambda a: sg.steady_state(lambda h, a: h, torch.zeros(3, 4, **F64), a, batch_dims=1).value)(a)


def test_graphs_batched_as_one():
    index = torch.tensor([0, 0, 1])

    def value(a):
        return sg.steady_state(lambda h: a[:, None] * h + 1, torch.zeros(3, 1, **F64), batch_index=index, forward=LONG).value[
            :, 0
        ]

    expected = torch.diag(1 / (1 - RATES) ** 2)
    torch.testing.assert_close(jacrev(value)(RATES), expected)
    torch.testing.assert_close(jacfwd(value)(RATES), expected)


def test_sparse_products_have_no_batching_rule():
    """The right-hand sides are then taken one by one, with the same result."""
    A = (0.3 * torch.eye(4, **F64)).to_sparse()

    def value(x):
        return sg.steady_state(lambda h: torch.sparse.mm(A, h) + x, torch.zeros(4, 1, **F64), forward=LONG).value

    x = torch.ones(4, 1, **F64).requires_grad_()
    found = torch.autograd.functional.jacobian(value, x, vectorize=True)
    torch.testing.assert_close(found.reshape(4, 4), torch.eye(4, **F64) / 0.7)


def test_dropout_is_frozen_within_a_solve():
    def value(x):
        update = lambda h: torch.tanh(0.3 * torch.nn.functional.dropout(h, 0.5) + x)  # noqa: E731
        return sg.steady_state(update, torch.zeros(8, **F64), forward=LONG).value

    x = torch.ones(3, 8, **F64)
    same = vmap(value, randomness="same")(x)
    assert torch.equal(same[0], same[1])
    different = vmap(value, randomness="different")(x)
    assert not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(value)(x)
    torch.manual_seed(0)
    slope = grad(lambda x: value(x).sum())(x[0])
    torch.manual_seed(0)
    leaf = x[0].clone().requires_grad_()
    value(leaf).sum().backward()
    torch.testing.assert_close(slope, leaf.grad)


def test_autocast():
    W = 0.1 * torch.ones(4, 4)

    def loss(W):
        found = sg.steady_state(lambda h: torch.tanh(h @ W + 1), torch.zeros(2, 4), forward=sg.Picard(100, 1e-2))
        return found.value.sum()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = grad(loss)(W)
    leaf = W.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss(leaf).backward()
    torch.testing.assert_close(found, leaf.grad)


def test_iterates():
    def at_third(a):
        return sg.steady_state(lambda h: a * h + 1, torch.zeros(1, **F64), iterates=[3]).iterates[3].sum()

    torch.testing.assert_close(vmap(grad(at_third))(RATES[:2]), (1 + RATES[:2] + RATES[:2] ** 2) / (1 - RATES[:2]))


def test_a_detached_path_is_reported():
    def value(a):
        return sg.steady_state(lambda h: a * h.detach() + 1, torch.zeros(2, **F64), on_failure="raise").value.sum()

    with pytest.raises(sg.SteadyStateError, match="no path from the state"):
        grad(value)(RATES[1])


def solve(a, **options):
    return sg.steady_state(lambda h: a * h + 1, torch.zeros(2, **F64), **options).value.sum()


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: grad(lambda a: solve(a, compile=True))(RATES[1]), sg.SteadyStateError, "compile=True"),
        (lambda: grad(lambda a: solve(a, gradient=sg.BPTT(checkpoints=3)))(RATES[1]), sg.SteadyStateError, "autograd's own graph"),
        (lambda: grad(lambda a: solve(a, gradient="bptt", iterates=[3]))(RATES[1]), sg.SteadyStateError, "with iterates="),
        (lambda: grad(lambda a: solve(a, gradient="bptt", forward=sg.Reversible(damping=0.8)))(RATES[1]), sg.SteadyStateError, "Reversible"),
        (lambda: grad(lambda a: solve(a, gradient="bptt", forward=sg.Anderson()))(RATES[1]), TypeError, "must be Picard"),
        (lambda: hessian(lambda a: solve(a, gradient="neumann-rbp"))(RATES[1]), ValueError, "Give Neumann an rtol"),
        (lambda: hessian(lambda a: solve(a, gradient="tbptt"))(RATES[1]), ValueError, "TBPTT truncates"),
        (lambda: hessian(lambda a: solve(a, gradient="phantom"))(RATES[1]), ValueError, "Phantom truncates"),
        (lambda: functionalize(solve)(RATES[1]), sg.SteadyStateError, "functionalize"),
        (lambda: vmap(lambda a: solve(a, batch_index=torch.tensor([0, 1])))(RATES), sg.SteadyStateError, "batch_index"),
        (
            lambda: vmap(lambda a: sg.steady_state(lambda h: 0.5 * h + (a if h.any() else 1), torch.zeros(2, **F64)).value)(RATES),
            sg.SteadyStateError,
            "write the branch with torch\\.where",
        ),
        (
            lambda: vmap(lambda a: sg.minimum(lambda h: (h - a).square().sum(), torch.zeros(2), forward=sg.Minimise()).value)(RATES),
            ValueError,
            "forward=NewtonCG",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused(call, error, match):
    with pytest.raises(error, match=match):
        call()
    assert torch._C._functorch.peek_interpreter_stack() is None  # nothing is left behind


@pytest.mark.parametrize(
    ("gradient", "forward"), [(sg.BPTT(checkpoints=3), sg.Picard(9, 0.0)), (sg.BPTT(), sg.Reversible(9, 0.0, damping=0.8))]
)
def test_batched_cotangents_through_steps_that_are_taken_again(gradient, forward):
    x = torch.ones(2, **F64).requires_grad_()
    value = sg.steady_state(lambda h: 0.5 * h + x, torch.zeros(2, **F64), gradient=gradient, forward=forward).value
    with pytest.raises(sg.SteadyStateError, match="one cotangent at a time"):
        torch.autograd.grad(value, x, torch.eye(2, **F64), is_grads_batched=True, retain_graph=True)
    with pytest.raises(sg.SteadyStateError, match="one cotangent at a time"):
        vmap(lambda v: torch.autograd.grad(value, x, v, retain_graph=True)[0])(torch.eye(2, **F64))


def test_errors_in_f_leave_nothing_behind():
    def broken(a):
        def update(h):
            raise KeyError("mine")

        return sg.steady_state(update, torch.zeros(2, **F64)).value

    for transform in (vmap, grad, jacfwd, lambda f: vmap(jacfwd(f))):
        with pytest.raises(KeyError, match="mine"):
            transform(broken)(RATES)
        assert torch._C._functorch.peek_interpreter_stack() is None
        assert torch.func.grad(lambda x: x.square())(torch.tensor(3.0)) == 6


def test_linear_systems_inside_f():
    """docs/transforms.md: torch's forward mode of linalg.solve is wrong under two vmaps; jacrev and lu_solve are right."""
    generator = torch.Generator().manual_seed(0)
    A, X = (torch.randn(3, 3, generator=generator, **F64) for _ in range(2))
    A = A @ A.T + torch.eye(3, **F64)

    def steady(x, solve):
        return sg.steady_state(lambda h: 0.3 * solve(torch.sin(h) + x), torch.zeros(3, **F64), forward=LONG).value

    def by_solve(v):
        return torch.linalg.solve(A, v)

    def by_lu(v):
        return torch.linalg.lu_solve(*torch.linalg.lu_factor(A), v.unsqueeze(-1)).squeeze(-1)

    alone = torch.stack([jacrev(steady)(x, by_lu) for x in X])
    torch.testing.assert_close(vmap(jacrev(lambda x: steady(x, by_solve)))(X), alone, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(vmap(jacfwd(lambda x: steady(x, by_lu)))(X), alone, rtol=1e-8, atol=1e-10)
    plain = torch.stack([torch.autograd.functional.jacobian(by_solve, x) for x in X])
    assert (vmap(jacfwd(by_solve))(X) - plain).abs().max() > 1, "torch has mended it: the warning in the docs can go"
