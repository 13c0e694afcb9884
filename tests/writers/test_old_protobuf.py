"""The main job beside frameworks that pin an old protobuf."""

import os
import subprocess
import sys

import pytest
from paths import ROOT

from traceconv.validation import validate

SAMPLE = ROOT / "golden" / "trace_view" / "demo" / "input"


@pytest.fixture(scope="module")
def old_protobuf(tmp_path_factory):
    """A folder with protobuf 4.25, to be put before all others."""
    folder = tmp_path_factory.mktemp("protobuf")
    call = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    done = subprocess.run(
        [*call, "protobuf==4.25.8"], capture_output=True, check=False, timeout=120
    )
    if done.returncode:
        pytest.skip("no package registry to take protobuf 4.25 from")
    return folder


@pytest.mark.thorough
def test_merging_works_with_protobuf_4_25(old_protobuf, tmp_path):
    """Both formats are written and sound, with the old runtime the only one in sight."""
    environment = {**os.environ, "PYTHONPATH": f"{old_protobuf}{os.pathsep}{ROOT}"}
    code = "import google.protobuf as p; print(p.__version__)"
    version = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert version.stdout.strip() == "4.25.8"
    for ending in (".pftrace", ".json"):
        out = tmp_path / f"out{ending}"
        call = ["merge", str(SAMPLE), "-m", "detail", "-q", "-o", str(out)]
        subprocess.run([sys.executable, "-m", "traceconv", *call], env=environment, check=True)
        assert validate(out).ok
