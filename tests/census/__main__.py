"""``python -m tests.census > docs/reference/census.md``: print the census."""

import sys

from tests.census import page

if __name__ == "__main__":
    sys.stdout.write(page())
