"""What the recorded jobs compute; imported when the environment of JAX is set."""

import jax
import jax.numpy as jnp


@jax.jit
def train(w, x):
    """A step: the new weights, and the loss."""

    def loss(w):
        return jnp.mean((jnp.tanh(x @ w) @ w.T - x) ** 2)

    value, gradient = jax.value_and_grad(loss)(w)
    return w - 0.1 * gradient, value
