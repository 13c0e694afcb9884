"""What the repository holds: sources, documents, golden inputs, and no output of a run."""

import subprocess
from pathlib import PurePath

import pytest
from paths import ROOT

TOP_LEVEL = {
    ".ci", ".dockerignore", ".gitattributes", ".github", ".gitignore", ".pre-commit-config.yaml",
    "action.yml", "bench", "CHANGELOG.md", "conda", "CONTRIBUTING.md", "Dockerfile", "docs",
    "examples", "fuzz", "golden", "LICENSE", "Makefile", "MANIFEST.in", "mkdocs.yml",
    "pyproject.toml", "README.md", "README.zh-CN.md", "schemas", "SECURITY.md", "setup.py",
    "SKILL.md", "tests", "traceconv",
}  # fmt: skip

BINARY = {"examples": {".gz"}, "docs": {".png"}, "tests": {".binpb"}}
"""Suffixes of files that are not text, by top-level folder; golden inputs may be anything."""


@pytest.fixture(scope="module")
def tracked():
    """Paths of all files under version control."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [PurePath(name) for name in listed.stdout.decode().split("\0") if name]


def test_top_level_holds_what_is_listed(tracked):
    """Outputs of profilers and of traceconv itself land at the top level: none is committed."""
    assert {path.parts[0] for path in tracked} <= TOP_LEVEL


def test_files_outside_golden_are_text(tracked):
    """A dump or an archive outside the golden inputs is a stray file."""
    stray = []
    for path in tracked:
        if path.parts[0] == "golden" or path.suffix in BINARY.get(path.parts[0], ()):
            continue
        content = ROOT / path
        if content.is_file() and b"\0" in content.read_bytes():
            stray.append(str(path))
    assert stray == []
