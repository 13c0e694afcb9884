"""Readers and writers that other packages bring."""

import json
import os
import subprocess
import sys
import zipfile

MODULE = """
class Foo:
    name, title, files, order = "foo", "Foo profiler", "*.foo", 5

    def find(self, source, names, issues):
        return []

    def read(self, capture, build):
        pass


READER = Foo()
"""

METADATA = "Metadata-Version: 2.1\nName: foo\nVersion: 1.0\n"

ASK = """
import json
from traceconv.find import registry
found = registry.readers()
print(json.dumps([list(found.found), found.broken]))
"""


def package(reads):
    """The files of an installed package with one reader at ``reads``."""
    return {
        "foo_reader.py": MODULE,
        "foo-1.0.dist-info/METADATA": METADATA,
        "foo-1.0.dist-info/entry_points.txt": f"[traceconv.readers]\nfoo = {reads}\n",
    }


def asked(place, script=ASK):
    """Names of all plugins, and those that are broken, with ``place`` among the installed."""
    path = os.pathsep.join([str(place), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    return json.loads(done.stdout)


def installed(folder, reads):
    for name, text in package(reads).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_readers_of_other_packages_are_asked_in_their_order(tmp_path):
    """An entry point of the group is a reader like ours."""
    names, broken = asked(installed(tmp_path, "foo_reader:READER"))
    assert (names[0], "trace_view" in names, broken) == ("foo", True, [])


def test_packages_in_an_archive_are_found(tmp_path):
    """Python imports from archives, and so do we."""
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, text in package("foo_reader:READER").items():
            archive.writestr(name, text)
    assert asked(tmp_path / "all.zip")[0][0] == "foo"


def test_a_reader_that_does_not_load_is_told_of(tmp_path):
    """What is wrong with a package is said; all other readers are there."""
    names, broken = asked(installed(tmp_path, "foo_reader:MISSING"))
    assert "foo" not in names
    assert [name for name, _ in broken] == ["foo"]
    assert broken[0][1].startswith("AttributeError")


WRITER = """
class WRITER:
    name, title, suffixes = "foo", "Foo", (".foo",)

    def begin(self, document):
        return b""
"""


def test_a_writer_that_lacks_members_is_reported(tmp_path):
    """It would fail halfway through a merge otherwise."""
    (tmp_path / "foo_writer.py").write_text(WRITER)
    (tmp_path / "foo-1.0.dist-info").mkdir()
    (tmp_path / "foo-1.0.dist-info" / "METADATA").write_text(METADATA)
    points = "[traceconv.writers]\nfoo = foo_writer:WRITER\n"
    (tmp_path / "foo-1.0.dist-info" / "entry_points.txt").write_text(points)
    names, broken = asked(tmp_path, ASK.replace("readers", "writers"))
    assert "foo" not in names
    assert broken == [["foo", "PluginError: it lacks between, member_capacity, trace, end, costs"]]
