"""PyTorch's profiler traces."""
