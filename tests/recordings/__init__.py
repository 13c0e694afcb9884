"""Captures that frameworks record here and now, of jobs whose truth is known.

``python -m tests.recordings --python VENV/bin/python`` runs small jobs with the frameworks that
this Python has (JAX, PyTorch, TensorFlow, ONNX Runtime, viztracer; nothing else needs them), reads
what their profilers leave behind and compares it with what the jobs did: which step launched a
program, which process slept, where a process is on a mesh of devices, what PyTorch's own table of
operators says, how many rows a router sent to each rank, what memory held, and what the
framework's own reader says of every name. Samples are a few days of a few versions; this is what
the next version writes.
"""
