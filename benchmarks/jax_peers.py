"""The peers in JAX, jitted, each used as its documentation says: jaxopt and optimistix."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.loops import Network, usual_norm
from benchmarks.peers import Found, Peer, Stop


class JaxPeer(Peer):
    """A peer in JAX: it finds the steady state, and jax.grad does the rest."""

    @abstractmethod
    def state(self, W: Any, x: Any, forward: Stop, adjoint: Stop) -> tuple[Any, Any]:
        """The steady state of tanh(h Wᵀ + x) from zero, and a number or code that tells how it was found."""

    @abstractmethod
    def flag(self, told: Any) -> str:
        """What `told` says, in words."""

    def _loss(self, x: Any, forward: Stop, adjoint: Stop) -> Callable[[Any], tuple[Any, Any]]:
        import jax.numpy as jnp

        def loss(W: Any) -> tuple[Any, Any]:
            h, told = self.state(W, x, forward, adjoint)
            return jnp.sum(h**2), told

        return loss

    def prepare(self, network: Network, forward: Stop, adjoint: Stop) -> Callable[[], Found]:
        import jax

        W, x = arrays(network)
        gradient = jax.jit(jax.grad(self._loss(x, forward, adjoint), has_aux=True))

        def run() -> Found:
            found, told = jax.block_until_ready(gradient(W))
            return Found(found, self.flag(told))

        return run

    def curvature(self, network: Network, direction: Tensor, stop: Stop) -> float:
        import jax
        import jax.numpy as jnp

        W, x = arrays(network)
        V = jnp.asarray(direction.numpy())
        loss = self._loss(x, stop, stop)
        along = lambda W: jnp.vdot(jax.grad(loss, has_aux=True)(W)[0], V)  # noqa: E731
        return float(jnp.vdot(jax.jit(jax.grad(along))(W), V))

    def slope(self, network: Network, direction: Tensor, stop: Stop) -> float:
        import jax
        import jax.numpy as jnp

        W, x = arrays(network)
        loss = self._loss(x, stop, stop)
        along = lambda V: jax.jvp(lambda W: loss(W)[0], (W,), (V,))[1]  # noqa: E731
        return float(jax.jit(along)(jnp.asarray(direction.numpy())))

    def each_gradient(self, network: Network, inputs: Tensor, stop: Stop) -> Any:
        import jax
        import jax.numpy as jnp

        W, _ = arrays(network)
        loss = lambda x: jnp.sum(self.state(W, x, stop, stop)[0] ** 2)  # noqa: E731
        return jax.jit(jax.vmap(jax.grad(loss)))(jnp.asarray(inputs.numpy()))


class JaxOpt(JaxPeer):
    name, package, by = "jaxopt", "jaxopt", "FixedPointIteration, solve_normal_cg, its default"

    def state(self, W: Any, x: Any, forward: Stop, adjoint: Stop) -> tuple[Any, Any]:
        import jax.numpy as jnp
        from jaxopt import FixedPointIteration, linear_solve

        solver = FixedPointIteration(
            lambda h, W, x: jnp.tanh(h @ W.T + x),  # whatever is differentiated must be an argument
            maxiter=forward.steps,
            tol=forward.rtol * usual_norm(x.size),  # its tolerance is absolute
            implicit_diff_solve=partial(linear_solve.solve_normal_cg, tol=adjoint.rtol, maxiter=adjoint.steps),
        )
        found, state = solver.run(jnp.zeros_like(x), W, x)
        return found, state.error

    def flag(self, told: Any) -> str:
        return f"state.error {float(told):.1e}"


class Optimistix(JaxPeer):
    name, package, by = "optimistix", "optimistix", "FixedPointIteration, lineax GMRES"

    def state(self, W: Any, x: Any, forward: Stop, adjoint: Stop) -> tuple[Any, Any]:
        import jax.numpy as jnp
        import lineax
        import optimistix

        # Its steps are cycles of `restart` products. It asks each number of the residual to be small beside that of b,
        # which needs an absolute part where b has zeros; less than this is not reached in float32.
        restart = min(60, adjoint.steps)
        cycles = max(1, adjoint.steps // restart)
        linear = lineax.GMRES(rtol=adjoint.rtol, atol=adjoint.rtol, max_steps=cycles, restart=restart)
        solution = optimistix.fixed_point(
            lambda h, W: jnp.tanh(h @ W.T + x),
            optimistix.FixedPointIteration(rtol=forward.rtol, atol=0.1 * forward.rtol),
            jnp.zeros_like(x),
            W,
            max_steps=forward.steps,
            adjoint=optimistix.ImplicitAdjoint(linear),
        )
        return solution.value, solution.stats["num_steps"]

    def flag(self, told: Any) -> str:
        return ""  # by default it raises, so that a result that is there is a success


def arrays(network: Network) -> tuple[Any, Any]:
    """W and x as arrays of JAX, in the dtype that they have."""
    import jax
    import jax.numpy as jnp

    if network.x.dtype == torch.float64:
        jax.config.update("jax_enable_x64", True)
    return jnp.asarray(network.W.detach().numpy()), jnp.asarray(network.x.numpy())
