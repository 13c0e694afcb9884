"""``python -m traceconv``: the command line, under a name nobody else has."""

from traceconv.cli import main

if __name__ == "__main__":
    main()
