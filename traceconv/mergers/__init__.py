"""Mergers: passes from one trace to another. A pass is a function; parameters via ``partial``."""

from __future__ import annotations

from collections.abc import Callable

from traceconv.model import Trace

Pass = Callable[[Trace], Trace]
