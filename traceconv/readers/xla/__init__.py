"""Readers of what XLA's profiler writes, for JAX, TensorFlow and PyTorch/XLA."""

READERS = {
    "xplane": "xplane",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
