"""Who may import whom, and what no module does: the house rules, read off the syntax trees."""

import ast

import pytest
from conftest import ROOT

PACKAGE = ROOT / "traceconv"
FILES = sorted(PACKAGE.rglob("*.py"))

GROUND = {"errors", "clock", "streams", "source", "intervals", "columns", "sheets", "model"}
GROUND |= {"remote", "storage", "window", "robust", "collectives", "matching"}
RUN = GROUND | {
    *("", "annotation", "build", "engines", "factsfile", "memory", "mergers", "overview"),
    *("park", "parkfile", "ranks", "registry", "report", "run", "writers"),
}
MAY_IMPORT = {
    "errors": set(),
    "intervals": set(),
    "clock": {"errors", "columns"},
    "streams": {"errors"},
    "storage": {"errors"},
    "window": {"errors", "streams"},
    "source": {"errors", "remote", "storage", "streams"},
    "remote": {"errors", "source", "storage", "streams"},
    "columns": set(),
    "sheets": {"errors"},
    "model": GROUND,
    "robust": {"columns"},
    "collectives": {"columns", "model"},
    "matching": {"collectives", "columns", "robust"},
    "build": GROUND,
    "parkfile": GROUND,
    "park": GROUND | {"", "parkfile"},
    "engines": {"engines", "errors", "memory"},
    "annotation": GROUND | {"analysis", "mergers"},
    "factsfile": GROUND | {"analysis"},
    "overview": GROUND | {"analysis", "factsfile", "mergers"},
    "memory": {"errors", "source"},
    "ranks": GROUND,
    "report": GROUND | {"", "ranks", "park"},
    "inspection": GROUND | {"ranks", "report"},
    "readers": GROUND | {"build", "ranks", "readers", "_proto"},
    "mergers": GROUND | {"mergers"},
    "writers": GROUND | {"", "memory", "writers", "_proto"},
    "checks": GROUND | {"checks", "_proto"},
    "analysis": GROUND | {"analysis", "ranks"},
    "_proto": set(),
    "registry": GROUND | {"readers", "writers"},
    "run": RUN,
    "prediction": GROUND | {"", "mergers", "park", "registry", "report", "run", "writers"},
    "api": RUN | {"inspection", "prediction"},
    "diagnosis": GROUND
    | {*("", "analysis", "api", "factsfile", "mergers", "overview", "ranks", "report")}
    | {"writers"},
    "comparison": GROUND | {"analysis", "api", "mergers", "writers"},
    "statistics": GROUND | {"analysis", "api", "mergers", "ranks", "writers"},
    "cli": {"", "analysis", "cli", "errors", "clock", "registry", "checks"},
    "__main__": {"cli"},
    "": {
        *("api", "comparison", "diagnosis", "statistics", "report", "writers", "model", "build"),
        *("errors", "checks", "inspection"),
    },
}
"""By the first part of a module's name below traceconv; "" is the package itself."""

OUTSIDERS = {
    "click": ("cli",),
    "tqdm": ("cli",),
    "google": ("writers", "_proto", "checks"),
    "perfetto": ("checks",),
}
"""Packages only some may import."""

SHARED = {"mergers.__init__", "writers.limits", "writers.output", "checks.__init__"}
SHARED |= {"writers.bundle"}
SHARED |= {"analysis.links"}
"""Modules of a family that are not one of its members: they put members together or serve all."""


def module_name(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def family(module):
    head = module.split(".")[0]
    return "" if head == "__init__" else head


def imports(path):
    """Every imported module of a file, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path):
    """The modules of the package a file imports, as paths below it."""
    for name in imports(path):
        if name == "traceconv":
            yield "__init__"
        elif name.startswith("traceconv."):
            below = name.removeprefix("traceconv.")
            target = PACKAGE / below.replace(".", "/")
            if target.with_suffix(".py").exists():
                yield below
            elif target.is_dir():
                yield f"{below}.__init__"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_only_what_its_place_allows(path):
    """A module imports only the families its own may know."""
    home = family(module_name(path))
    assert home in MAY_IMPORT, f"say in this file what {home} may import"
    strangers = {m for m in ours(path) if family(m) not in MAY_IMPORT[home] | {home}}
    assert set() == strangers


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_members_of_a_family_do_not_know_each_other(path):
    """Readers, mergers, writers and checks import no sibling but shared _helpers."""
    module = module_name(path)
    home = family(module)
    if home not in ("readers", "mergers", "writers", "checks", "analysis") or module in SHARED:
        return
    siblings = {
        m
        for m in ours(path)
        if family(m) == home
        and m != f"{home}.__init__"
        and m not in SHARED
        and not m.split(".")[1].startswith("_")
    }
    assert set() == siblings


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_packages_stay_where_they_belong(path):
    """click and tqdm only in cli; protobuf only where traces are encoded or checked."""
    home = family(module_name(path))
    used = {name.split(".")[0] for name in imports(path)}
    assert set() == {name for name in used & OUTSIDERS.keys() if home not in OUTSIDERS[name]}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_nothing_prints_evaluates_or_pickles(path):
    """Only the command line speaks, and nothing read is ever executed."""
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    modules = {name.split(".")[0] for name in imports(path)}
    assert set() == calls & {"print", "eval", "exec"} | modules & {"pickle", "marshal", "shelve"}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_no_error_is_swallowed_whole(path):
    """No handler catches everything, but the one around foreign plugins."""
    broad = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]
    assert (1 if module_name(path) == "registry" else 0) == len(broad)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_files_stay_readable(path):
    """No file grows beyond what holds one thing."""
    assert len(path.read_text().splitlines()) <= 450
