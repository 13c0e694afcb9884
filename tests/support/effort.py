"""How hard the slow tests try: a little on every run, a lot under ``make test-thorough``.

Both check the same properties; the thorough run draws more examples, cuts files at more places and
damages them more often.
"""

import os

THOROUGH = os.environ.get("TRACECONV_TESTS") == "thorough"


def effort(usual: int, thorough: int) -> int:
    """How many examples, places or times a test tries."""
    return thorough if THOROUGH else usual
