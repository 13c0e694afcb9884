"""Readers of XLA's profiler: JAX, TensorFlow and PyTorch/XLA."""

READERS = {
    "xla_json": "viewer_json",
    "xplane": "xplane",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
