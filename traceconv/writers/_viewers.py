"""What viewers open without trouble, and how that is known."""

from __future__ import annotations

TARGETS: dict[str, tuple[int | None, int | None]] = {
    "perfetto": (1 << 30, 10_000_000),
    "chrome": (256 << 20, 2_000_000),
    "none": (None, None),
}
"""Bytes (before compression) and rows by viewer; None = any.

* *perfetto*: a 32-bit build of ui.perfetto.dev may use 4 GB. Its importer takes 250 to 265 bytes
  per slice with three arguments (measured, release 58.2) and the opened viewer about 105 more: 4 GB
  are full at 11 million slices. Where the browser has 64-bit memory, four times that fits.
* *chrome*: chrome://tracing reads the file into one string, which may have 512 MB; 100 to 300 MB
  are what people open.
"""
