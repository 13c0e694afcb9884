"""What breaks traceconv: mutated inputs, coverage-guided fuzzing, and a table of damage.

``python -m fuzz mutants`` mutates the golden cases (and sample folders, if named) and takes each
through the whole pipeline; ``python -m fuzz coverage`` lets atheris look for inputs; ``python -m
fuzz matrix`` prints how much of a damaged file every reader recovers.
"""
