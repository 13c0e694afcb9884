"""JSON that came from a file."""

from __future__ import annotations

import msgspec

NOT_JSON = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""What decoding raises where the text is no JSON: not UTF-8, half of a surrogate pair, a number
beyond any double, nested too deeply, or another text altogether."""
