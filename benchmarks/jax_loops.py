"""F(h) = tanh(h Wᵀ + x) solved and differentiated in jitted JAX by the loops one would write by hand there."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from benchmarks.loops import LIMIT, Network

INSTALLED = find_spec("jax") is not None


def to_counts(network: Network, T: int, K: int) -> Callable[[], object]:
    """T steps, then K products, as one jitted function; waits for the result."""
    import jax
    from jax import lax

    def gradient(W, x, h):
        h = lax.fori_loop(0, T, lambda _, h: _update(W, x, h), h)
        _, pull = jax.vjp(lambda h: _update(W, x, h), h)
        b = 2 * h

        def term(_, pair):
            z, v = pair
            (v,) = pull(v)
            return z + v, v

        z, _ = lax.fori_loop(0, K, term, (b, b))
        return jax.vjp(lambda W: _update(W, x, h), W)[1](z)[0]

    return _ready(gradient, network)


def to_tolerance(network: Network, rtol: float) -> Callable[[], object]:
    """Both loops to a tolerance, with a norm after each step, as one jitted function; waits for the result."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def gradient(W, x, h):
        def moves(carry):
            h, new, steps = carry
            return (jnp.linalg.norm(new - h) > rtol * jnp.linalg.norm(new)) & (steps < LIMIT)

        _, h, _ = lax.while_loop(moves, lambda c: (c[1], _update(W, x, c[1]), c[2] + 1), (h, _update(W, x, h), 1))
        _, pull = jax.vjp(lambda h: _update(W, x, h), h)
        b = 2 * h
        goal = rtol * jnp.linalg.norm(b)

        def term(carry):
            z, v, products = carry
            return z + v, pull(v)[0], products + 1

        def falls_short(carry):
            return (jnp.linalg.norm(carry[1]) > goal) & (carry[2] < LIMIT)

        z, _, _ = lax.while_loop(falls_short, term, (b, pull(b)[0], 1))
        return jax.vjp(lambda W: _update(W, x, h), W)[1](z)[0]

    return _ready(gradient, network)


def _update(W, x, h):
    import jax.numpy as jnp

    return jnp.tanh(h @ W.T + x)


def _ready(gradient: Callable[..., object], network: Network) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    tensors = (network.W.detach(), network.x, network.start)
    W, x, h = (jnp.asarray(tensor.numpy()) for tensor in tensors)
    compiled = jax.jit(gradient)
    return lambda: jax.block_until_ready(compiled(W, x, h))
