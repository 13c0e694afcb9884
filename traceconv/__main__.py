"""``python -m traceconv``: the command line where the script ``traceconv`` is not on the path."""

from traceconv.cli import main

if __name__ == "__main__":
    main()
