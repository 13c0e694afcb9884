"""Tables beside what HTA and TraceLens say of the same captures, run here and now.

``python -m tests.other_tools --python VENV/bin/python [--tracelens SOURCE] [FOLDER ...]`` asks the
tools that this Python has (``pip install HolisticTraceAnalysis``; a checkout of AMD-AGI/TraceLens
with its requirements), which are needed for nothing else, and prints how many rows are equal, and
every other one:

* HTA: launches and the longest queue of every stream, time of every kernel, computing by rank;
* TraceLens: waiting and moving data by collective of the published jobs;
* sheets of TraceLens (``perf_csvs``) beside the captures of the folders: operations, bytes, calls
  and time of products, attention, convolutions and normalization.

``tests/real_data/test_other_tools.py`` keeps figures of both, with the differences that are known.
"""
