"""``watch`` on folders of many captures: its verdict on each window is that of ``diagnose``."""

import pytest
from effort import THOROUGH
from paths import DATA

import traceconv

FOLDERS = ["jobs/slow_worker", "field/hard"]
if THOROUGH:
    FOLDERS += [f"field/{name}" for name in ("ascend", "general", "gpu", "hub", "insight")]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_window_is_judged_as_offline(folder):
    """The whole document is equal, or the error. Files without a rank give an error."""
    judged = 0
    for window in traceconv.watch(DATA / folder, once=True, jobs=1):
        if not window.ranks:
            assert window.error
            continue
        judged += 1
        try:
            offline = traceconv.diagnose(*window.paths, jobs=1)
        except traceconv.TraceconvError as error:
            assert window.error == str(error)
        else:
            assert window.diagnosis, window.error
            assert window.as_dict()["diagnosis"] == offline.as_dict()
    print(f"{folder}: {judged} windows")
    assert judged > 0
