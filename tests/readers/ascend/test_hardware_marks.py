"""Markers among the tasks of Ascend's hardware lanes."""

import json

import traceconv


def test_an_instant_of_a_hardware_lane_stays_there(tmp_path):
    """Only complete events are tasks, and move to lanes of their own."""
    lanes = {"process_name": "Ascend Hardware", "thread_name": "Stream 2"}
    rows = [
        {"name": name, "ph": "M", "pid": 5, "tid": 2, "args": {"name": text}}
        for name, text in lanes.items()
    ]
    marker = {"name": "m", "ph": "i", "pid": 5, "tid": 2, "ts": 1000}
    rows.append({**marker, "args": {"Physic Stream Id": 2, "Task Id": 1}})
    (tmp_path / "trace_view.json").write_text(json.dumps(rows))
    (trace,) = traceconv.open(tmp_path).traces("source")
    assert trace.counts()["instant"] == 1
