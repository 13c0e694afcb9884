"""The conda recipe, the image and the workflows say what pyproject.toml says."""

import re
import tomllib

import pytest
from paths import ROOT

yaml = pytest.importorskip("yaml", reason="needs pyyaml")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OTHER_NAMES = {"python-isal": "isal"}
"""By name in conda-forge."""


@pytest.fixture(scope="module")
def recipe():
    """The recipe, whose one template is left as text."""
    return yaml.safe_load(re.sub(r"\{\{.*?\}\}", "x", (ROOT / "conda" / "meta.yaml").read_text()))


def test_the_recipe_needs_what_the_package_needs(recipe):
    """The same packages, versions of Python and entry points."""
    needed = dict(line.partition(" ")[::2] for line in recipe["requirements"]["run"])
    assert needed.pop("python") == PROJECT["requires-python"]
    named = {OTHER_NAMES.get(name, name) + version for name, version in needed.items()}
    assert named == set(PROJECT["dependencies"])
    scripts = {f"{name} = {entry}" for name, entry in PROJECT["scripts"].items()}
    assert set(recipe["build"]["entry_points"]) == scripts


def test_the_recipe_is_of_this_version(recipe):
    """As the package states it."""
    from traceconv.core.version import __version__

    assert recipe["package"]["version"] == __version__


def test_the_image_has_a_supported_python():
    """A version that the package is classified for."""
    versions = set(re.findall(r"FROM python:([\d.]+)-slim", (ROOT / "Dockerfile").read_text()))
    listed = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python ::" in line}
    assert len(versions) == 1 and versions <= listed


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=str)
def test_workflows_name_versions_of_actions(path):
    """They parse, and every action has a version."""
    jobs = yaml.safe_load(path.read_text())["jobs"]
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used and all(re.search(r"@(v\d[\d.]*|release/v\d)$", action) for action in used)
