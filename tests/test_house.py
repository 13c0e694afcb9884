"""The house rules, read off the syntax trees: who may import whom, and what no module does."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest
from trees import PACKAGE, trees

LEVELS = (
    {"__main__"},
    {"cli"},
    {"mcp"},
    {"traceconv"},
    {"api", "plugin"},
    {"merging"},
    {"run"},
    {"find"},
    {"report"},
    {"analysis"},
    {"options"},
    {"validation", "store"},
    {"readers", "passes", "alignment", "writers"},
    {"protobuf", "io"},
    {"core"},
    {"scratch"},
    {"core.errors", "core.patterns", "core.version", "core.choices", "native"},
    {"core.codes"},
)
"""The contract: a room imports rooms below its own line only. ``traceconv`` is the package itself,
which exports the API; errors are below everything, so that whatever fails can say so."""

SHARED_BY_READERS = "readers.shared"
"""What a family of readers may import of the readers besides itself, and their protocol."""

OUTSIDERS = {
    "click": ("cli",),
    "tqdm": ("cli",),
    "google": ("validation",),
    "perfetto": ("validation",),
}
"""Packages that only some rooms import."""


@cache
def modules():
    """Every module of the package by its dotted name below it: its tree."""
    found = {}
    for path, tree in trees().items():
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__").replace("__init__", "traceconv")] = tree
    return found


@cache
def nodes():
    """The nodes of every module that some rule is about, by the module's name."""
    kinds = ast.Import, ast.ImportFrom, ast.Call, ast.ExceptHandler
    return {
        name: [node for node in ast.walk(tree) if isinstance(node, kinds)]
        for name, tree in modules().items()
    }


@cache
def imports():
    """By module: (imported module, line)."""
    found = {}
    for name in modules():
        found[name] = [
            (target, node.lineno)
            for node in nodes()[name]
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for target in targets(node)
        ]
    return found


def targets(node):
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        assert node.level == 0, f"line {node.lineno}: imports are absolute here"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        below = name.removeprefix("traceconv.")
        if not name.startswith("traceconv"):
            yield f"/{name}"
        elif below in modules():
            yield below
        else:
            yield below.rpartition(".")[0] or "traceconv"


def ours():
    """All arrows: (module, imported module, line)."""
    for name, found in imports().items():
        for target, line in found:
            if not target.startswith("/"):
                yield name, target, line


def room(name):
    return name if any(name in level for level in LEVELS) else name.split(".")[0]


def level(name):
    return next(i for i, rooms in enumerate(LEVELS) if room(name) in rooms)


def family(name):
    """The family of a reader's module: "readers.ascend"; "" of the protocol."""
    return ".".join(name.split(".")[:2]) if name.startswith("readers.") else ""


def test_imports_point_downwards():
    """A room imports those below it; only the package exports what is beneath it."""
    assert [
        f"{name}:{line} imports {target}"
        for name, target, line in ours()
        if room(name) != room(target) and level(target) <= level(name)
    ] == []


def test_families_of_readers_do_not_know_each_other():
    """A family imports itself, what readers share, and the rooms below."""
    assert [
        f"{name}:{line} imports {target}"
        for name, target, line in ours()
        if family(name)
        and target.startswith("readers.")
        and family(target) not in (family(name), SHARED_BY_READERS)
    ] == []


def test_private_modules_stay_in_their_package():
    """``_name`` is for the package it is in."""
    assert [
        f"{name}:{line} imports {target}"
        for name, target, line in ours()
        if "._" in target and target.rpartition("._")[0] not in (name, name.rpartition(".")[0])
    ] == []


def test_no_circles():
    """No module needs itself, counting imports in functions."""
    graph = {name: set() for name in modules()}
    for name, target, _ in ours():
        if name != target:
            graph[name].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        pytest.fail(" -> ".join(e.args[1]))


def test_packages_are_used_where_they_belong():
    """click and tqdm in the command line only; protobuf where traces are decoded."""
    assert [
        f"{name}:{line} imports {target[1:]}"
        for name, found in imports().items()
        for target, line in found
        if target.startswith("/")
        and room(name) not in OUTSIDERS.get(target[1:].split(".")[0], (room(name),))
    ] == []


def test_nothing_prints_evaluates_or_pickles():
    """Only the command line writes to the terminal, and nothing read is ever executed."""
    unwanted = {"print", "eval", "exec", "/pickle", "/marshal", "/shelve"}
    used = []
    for name in modules():
        calls = {
            node.func.id
            for node in nodes()[name]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        roots = {target.split(".")[0] for target, _ in imports()[name]}
        used += [f"{name} uses {word}" for word in (calls | roots) & unwanted]
    # its unpickler has no instruction that imports, calls or sets anything
    assert used == ["readers.torch.plain_pickle uses /pickle"]


def test_patterns_are_compiled_when_they_are_used():
    """A module that compiles one where it is loaded makes every command start later."""
    compiled = [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        for node in at_load(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile"
    ]
    assert compiled == []


def at_load(node):
    """What runs when a module is loaded: nothing within functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield child
            yield from at_load(child)


def test_no_error_is_swallowed_whole():
    """No handler catches everything, but those around plugins of others, as they load and work."""
    broad = [
        name
        for name in modules()
        for node in nodes()[name]
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]
    assert broad == ["core.plugins", "core.plugins"]
