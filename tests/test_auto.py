"""How `Auto` chooses: products against those of the best single solver, what each rule does, and the Krylov space behind it."""

import math

import pytest
import torch
from benchmarks.families import matrices

import steadygrad as sg
from problems import FAMILIES, DenseMap, adjoint_of, matrix, relative
from steadygrad.iteration import Forecast
from steadygrad.iteration.gain import inner_products
from steadygrad.linear import Recurrence, auto
from steadygrad.linear.gmres import GMRES
from steadygrad.linear.krylov import Krylov
from steadygrad.linear.lsqr import LSQR
from steadygrad.linear.neumann import Sum
from steadygrad.linear.outlook import lsqr_is_faster, terms_left_by_bend
from steadygrad.linear.system import System
from steadygrad.linear.terms import SeriesTerms, is_symmetric
from steadygrad.state.rows import ratio

ROWS = 8
LIMIT = {"rtol": 1e-5, "max_steps": 2000}
SINGLE = {
    "Neumann": sg.Neumann(**LIMIT),
    "Picard": Recurrence(sg.Picard(**LIMIT)),
    "GMRES": sg.GMRES(**LIMIT),
    "BiCGSTAB": sg.BiCGSTAB(**LIMIT),
    "LSQR": sg.LSQR(**LIMIT),
    "NormalCG": sg.NormalCG(**LIMIT),
}


def last_terms(terms):
    return SeriesTerms.of(terms, inner_products(terms, len(terms[0])).numpy(), torch.float64)


class Repeated(DenseMap):
    """One J for several rows of a state that is one problem, as in `h @ W.T` without batch_dims."""

    def vjp(self, v):
        return super().vjp(v.view(-1, len(self.J))).view(v.shape)

    def jvp(self, v):
        return super().jvp(v.view(-1, len(self.J))).view(v.shape)


def problem(name, size=64):
    J = matrices(size)[name]
    b = torch.randn(ROWS, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return J, b, adjoint_of(J, b)


def solved(solver, J, b, exact):
    """The products of a solve in float32, infinitely many where it failed."""
    operator = Repeated(J.float())
    found = solver.solve(operator, b.float().view(1, -1))
    right = found.status == [sg.Status.CONVERGED] and relative(found.z.double().view(b.shape), exact) < 1e-2
    return operator.products if right else math.inf


class TestInHindsight:
    @pytest.mark.parametrize("name", matrices(8))
    def test_products(self, name):
        """Of the best single solver, told that F is dear and not: what seconds are where products are what costs."""
        case = problem(name)
        best = min(solved(solver, *case) for solver in SINGLE.values())
        assert math.isfinite(best)
        assert solved(sg.Auto(dear=True, **LIMIT), *case) <= 1.3 * best
        assert solved(sg.Auto(**LIMIT), *case) <= 1.7 * best

    @pytest.mark.parametrize("dear", [False, True])
    @pytest.mark.parametrize("name", ["non-normal", "rotation-like, ρ = 0.99", "1.5 × orthogonal", "random, ρ = 0.99"])
    def test_larger_problems_do_not_fail(self, name, dear):
        case = problem(name, size=200)
        best = min(solved(solver, *case) for solver in SINGLE.values())
        assert solved(sg.Auto(dear=dear, **LIMIT), *case) <= 2.5 * best

    def test_the_same_bits_in_twenty_calls(self):
        for name in ("random, ρ = 0.95", "1.5 × orthogonal"):
            J, b, _ = problem(name)
            found = {sg.Auto(**LIMIT).solve(Repeated(J.float()), b.float().view(1, -1)).z.numpy().tobytes() for _ in range(20)}
            assert len(found) == 1

    def test_a_batch_of_easy_and_hard_problems_some_without_a_cotangent(self):
        G = matrix("random", 1.0, size=64)
        J = torch.stack([0.3 * G, 0.9 * G, 0.99 * G, 1.3 * G, 0.97 * G])
        b = torch.randn(5, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        b[1] = 0

        class Batch(DenseMap):
            def vjp(self, v):
                self.products += 1
                return torch.einsum("ri,rij->rj", v, self.J)

            def jvp(self, v):
                self.products += 1
                return torch.einsum("rj,rij->ri", v, self.J)

        exact = torch.cat([adjoint_of(one, row[None]) for one, row in zip(J, b, strict=True)])
        for dear in (False, True):
            operator = Batch(J)
            found = sg.Auto(dear=dear).solve(operator, b)
            assert found.status == [sg.Status.CONVERGED] * 5
            assert found.z[1].count_nonzero() == 0
            assert relative(found.z, exact) < 1e-8
            assert operator.products < 200


class TestRules:
    def phases(self, J, b, map_of=Repeated, **options):
        """The solvers of a solve in their order, by the driver's looks."""
        seen = []

        class Spy(sg.Auto):
            def turn(self, problem, state, forecast):
                state = super().turn(problem, state, forecast)
                seen.append(type(state.solver).__name__.strip("_"))
                return state

        Spy(**LIMIT, **options).solve(map_of(J.float()), b.float().view(1, -1))
        return list(dict.fromkeys(seen))

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("random, ρ = 0.8", ["LongSeries"]),
            ("random, ρ = 0.99", ["LongSeries", "GMRES"]),
            ("rotation-like, ρ = 0.9", ["LongSeries"]),  # GMRES would need more than half of the terms
            ("random, ρ = 1.3", ["LongSeries", "GMRES"]),
        ],
    )
    def test_phases(self, name, expected):
        J, b, _ = problem(name)
        assert self.phases(J, b) == expected

    @pytest.mark.parametrize(
        ("name", "light", "other"),
        [
            ("random, ρ = 0.9", ["LongSeries"], ["LongSeries", "GMRES"]),
            ("random, ρ = 0.99", ["LongSeries", "GMRES"], ["LongSeries", "GMRES"]),
        ],
    )
    def test_where_products_are_little_work_the_series_may_need_more_terms(self, name, light, other):
        class Light(Repeated):
            light = True

        J, b, _ = problem(name)
        assert self.phases(J, b, map_of=Light) == light
        assert self.phases(J, b) == other

    def test_a_well_conditioned_system_that_is_no_contraction_goes_to_lsqr(self):
        J, b, _ = problem("1.5 × orthogonal", size=200)
        assert self.phases(J, b)[-1] == self.phases(J, b, dear=True)[-1] == "LSQR"

    def test_a_non_normal_one_does_not(self):
        """Its condition is seen to grow with every step: LSQR would need thousands of products."""
        J, b, _ = problem("non-normal", size=200)
        assert "LSQR" not in self.phases(J, b) + self.phases(J, b, dear=True)

    @pytest.mark.parametrize(("even", "expected"), [(0.95, "CG"), (-1.4, "CG"), (1.4, "GMRES")])
    def test_a_symmetric_one_goes_to_conjugate_gradients_where_these_are_valid(self, even, expected):
        """An eigenvalue below −1 leaves I − J positive definite, one above 1 does not."""
        Q = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(2), dtype=torch.float64))[0]
        J = Q @ torch.diag(torch.cat([torch.linspace(-0.9, 0.95, 63), torch.tensor([even])]).double()) @ Q.T
        b = problem("symmetric")[1]
        assert self.phases(J, b) == ["LongSeries", expected]
        assert math.isfinite(solved(sg.Auto(**LIMIT), J, b, adjoint_of(J, b)))

    def test_conjugate_gradients_that_lead_nowhere_are_left_for_gmres(self, monkeypatch):
        J, b, exact = problem("random, ρ = 1.3")
        monkeypatch.setattr(auto, "is_symmetric", lambda _: True)
        assert self.phases(J, b) == ["LongSeries", "CG", "GMRES"]
        assert math.isfinite(solved(sg.Auto(**LIMIT), J, b, exact))

    def test_a_large_state_stays_with_the_series_for_its_memory(self, monkeypatch):
        J, b, exact = problem("random, ρ = 0.9")
        monkeypatch.setattr(auto, "LARGE", 0)
        assert self.phases(J, b) == ["Series"]
        assert math.isfinite(solved(sg.Auto(**LIMIT), J, b, exact))

    def test_a_series_that_bends_down_is_kept(self):
        """A parabola in the logarithm of the residual is told exactly, and a straight line too, up or down."""
        looks = [1, 2, 3, 5, 8, 12, 17]
        falls = tuple((k, 0.02 * (60 - k) * (k + 20)) for k in looks)
        assert terms_left_by_bend(falls) == pytest.approx(60 - 17)
        assert terms_left_by_bend(tuple((k, 20 - 0.1 * k) for k in looks)) > 182
        assert terms_left_by_bend(tuple((k, 20 + 0.3 * k) for k in looks)) > 1e6

    def test_lsqr_is_not_compared_before_its_condition_is_seen(self):
        J, b, _ = problem("1.5 × orthogonal", size=200)
        system = System(Repeated(J), b.view(1, -1))
        space = Krylov.of(torch.zeros(1, b.numel(), dtype=b.dtype), b.view(1, -1))
        forecast = Forecast(12, math.inf, 1.0, math.log(1e5))
        assert not lsqr_is_faster(space.extended(system, 8), b.numel(), 100, forecast)
        assert lsqr_is_faster(space.extended(system, 16), b.numel(), 100, forecast)
        assert not lsqr_is_faster(space.extended(system, 16), 100, 100, forecast)  # soon full


class TestKrylovSpace:
    def start(self, family, radius=0.9, size=40, rows=3, seed=0):
        b = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return System(DenseMap(matrix(family, radius, size=size)), b), Krylov.of(torch.zeros_like(b), b)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_powers_together_are_as_good_as_one_by_one(self, family):
        system, space = self.start(family)
        one = together = space
        for count in (1, 4, 4, 7, 9):
            together = together.extended(system, count)
            for _ in range(count):
                one = one.extended(system, 1)
            assert together.steps == one.steps
            torch.testing.assert_close(together.residual(), one.residual(), rtol=1e-6, atol=1e-12)
            torch.testing.assert_close(together.value(), one.value(), rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_the_residual_is_that_of_the_value_and_so_is_its_history(self, family):
        system, space = self.start(family)
        history = [space.residual()]
        for _ in range(12):
            space = space.extended(system, 1)
            true = torch.linalg.vector_norm(system.residual(space.value()), dim=1, keepdim=True)
            torch.testing.assert_close(space.residual(), true, rtol=1e-8, atol=1e-13)
            history.append(space.residual())
        torch.testing.assert_close(torch.from_numpy(space.fallen), torch.cat(history, dim=1) / history[0], rtol=1e-8, atol=0)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_it_begins_with_the_terms_of_the_series(self, family):
        """No product is spent, and the residual is the smallest over all of them, or over the last independent ones."""
        system, _ = self.start(family)
        terms, z = [system.b], torch.zeros_like(system.b)
        for _ in range(10):
            z = z + terms[-1]
            terms.append(system.vjp(terms[-1]))
        spent = system.jacobian.products
        found = last_terms(terms)
        assert found is not None
        space = found.space(z, torch.float64)
        assert space is not None
        assert system.jacobian.products == spent
        fresh = Krylov.of(z - sum(terms[-1 - space.steps : -1]), terms[-1 - space.steps]).extended(system, space.steps)
        torch.testing.assert_close(space.residual(), fresh.residual(), rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(space.value(), fresh.value(), rtol=1e-6, atol=1e-9)
        assert found.hessenberg() == pytest.approx(space.hessenberg(), rel=1e-6, abs=1e-9)

    def test_how_it_would_fall_is_told_by_inner_products_alone(self):
        system, space = self.start("random")
        terms = [system.b]
        for _ in range(8):
            terms.append(system.vjp(terms[-1]))
        expected = [space.residual()]
        for _ in range(8):
            space = space.extended(system, 1)
            expected.append(space.residual())
        found = last_terms(terms)
        assert found is not None
        now = torch.linalg.vector_norm(terms[-1], dim=1, keepdim=True)
        torch.testing.assert_close(torch.from_numpy(found.fallen), torch.cat(expected, dim=1) / now, rtol=1e-6, atol=0)

    @pytest.mark.parametrize("radius", [0.5, 0.99])
    @pytest.mark.parametrize("family", FAMILIES)
    def test_symmetry_is_told_by_inner_products_alone(self, family, radius):
        system, _ = self.start(family, radius)
        terms = [system.b]
        for _ in range(8):
            terms.append(system.vjp(terms[-1]))
        for count in (3, 9):
            assert is_symmetric(inner_products(terms[:count], len(terms[0])).numpy()) == (family == "symmetric")

    def test_terms_that_have_all_but_reached_an_eigenvector_do_not_pass_for_those_of_a_symmetric_matrix(self):
        J, b, _ = problem("nearly singular")
        terms = [b.view(1, -1)]
        for _ in range(27):
            terms.append(Repeated(J).vjp(terms[-1]))
        gram = inner_products(terms[11:], 1).numpy()
        assert abs(gram[:, 0, 2] / gram[:, 1, 1] - 1).max() < 1e-3  # as of a symmetric one
        assert not is_symmetric(gram)

    def test_dependent_powers_are_not_taken_together(self):
        """An eigenvalue far above the others: the powers are soon one vector."""
        J = torch.diag(torch.cat([torch.tensor([0.99]), torch.full((39,), 0.01)])).double() + 1e-3 * matrix(
            "random", 0.9, size=40
        )
        b = torch.randn(1, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        system = System(DenseMap(J), b)
        space = Krylov.of(torch.zeros_like(b), b).extended(system, 12)
        true = torch.linalg.vector_norm(system.residual(space.value()), dim=1, keepdim=True)
        torch.testing.assert_close(space.residual(), true, rtol=1e-3, atol=1e-13)

    def test_a_full_space_is_not_multiplied_on(self):
        operator = DenseMap(matrix("rotation", 1.5, size=10))
        b = torch.randn(1, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        assert sg.GMRES(restart=30).solve(operator, b).status == [sg.Status.CONVERGED]
        assert operator.products <= 14

    def test_a_multiple_of_the_identity_has_a_space_of_one_direction(self):
        """The powers are in the space already, exactly: nothing is left of them, which must not pass for a solved problem."""
        b = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
        system = System(DenseMap(0.5 * torch.eye(3, dtype=torch.float64)), b)
        space = Krylov.of(torch.zeros_like(b), b).extended(system, 3)
        assert space.residual().abs().max() < 1e-15
        assert torch.equal(space.value(), 2 * b)

    def test_only_consecutive_terms_count(self):
        v, u, w = (torch.randn(1, 5) for _ in range(3))
        chain = ((v, u), (u, w))
        assert [t.data_ptr() for t in auto._consecutive(Sum(v, w, chain))] == [t.data_ptr() for t in (v, u, w)]
        assert len(auto._consecutive(Sum(v, w.clone(), chain))) == 1  # after a leap
        assert len(auto._consecutive(Sum(v, w, ((v, u.clone()), (u, w))))) == 2  # as a compiled series hands out


def test_restarts_go_on_from_the_smallest_residual():
    system, space = TestKrylovSpace().start("random")
    space = space.extended(system, 6)
    again = Krylov.of(*space.smallest())
    torch.testing.assert_close(again.value(), space.value())
    torch.testing.assert_close(again.residual(), space.residual(), rtol=1e-9, atol=0)
    assert GMRES(restart=6).step(system, space).steps == 1
    assert LSQR().at_once(system, space) == 0


def test_division_by_zero_leaves_zero():
    found = ratio(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[2.0], [0.0]]))
    assert found.tolist() == [[0.5, 1.0], [0.0, 0.0]]
    assert ratio(1.0, torch.tensor([[4.0], [0.0]])).tolist() == [[0.25], [0.0]]
