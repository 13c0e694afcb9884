"""What shells offer."""

import os
import shutil
import subprocess
import sys

import pytest
from paths import ROOT

from traceconv.cli import cli, completion


@pytest.fixture
def offered(monkeypatch, capsys):
    """Tells (kind, value) pairs for the last of some words, as the shell's script reads them."""

    def ask(*words):
        monkeypatch.setenv("_TRACECONV_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["traceconv", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        assert completion.answer(cli) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return [tuple(line.split(",", 1)) for line in out.splitlines()]

    return ask


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mer"], ["merge"]),
        (["merge", "--mode", "s"], ["summary", "source"]),
        (["merge", "--max-e"], ["--max-events"]),
        (["merge", "--from", "kin"], ["kineto"]),
        (["merge", "--to", "ch"], ["chrome_json"]),
        (["merge", "--layers", "step,ov"], ["step,overlap"]),
        (["merge", "--layers", "comm,c"], ["comm,counter"]),
        (["merge", "--map", "nsys-a"], ["nsys-api"]),
        (["stats", "--format", "c"], ["csv"]),
        (["stats", "--by", "kernel,step_s"], ["kernel,step_summary"]),
        (["diagnose", "--rule", "long-tail,iter"], ["long-tail,iteration-gap"]),
        (["diagnose", "--fail-on", "w"], ["warning"]),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else None,
)
def test_values_are_offered(offered, words, expected):
    """Names of the library's own lists; after a comma those that are not there yet."""
    assert offered(*words) == [("plain", one) for one in expected]


@pytest.mark.parametrize(
    "words",
    [["merge", "pro"], ["merge", "-o", "out"], ["merge", "--align", "off"], ["validate", "a", "b"]],
)
def test_files_are_left_to_the_shell(offered, words):
    """It lists them better."""
    assert offered(*words) == [("file", words[-1])]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_takes_the_script(tmp_path):
    """The line of the README, and what a press of the key would show."""
    program = tmp_path / "traceconv"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m traceconv "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(_TRACECONV_COMPLETE=bash_source traceconv)"\n'
        "complete -p traceconv\n"
        "COMP_WORDS=(traceconv merge --mode s) COMP_CWORD=3\n_traceconv_completion traceconv\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    registered, values = done.stdout.splitlines()
    assert (registered.split()[-1], values) == ("traceconv", "summary source")


@pytest.mark.parametrize(("asked", "code"), [("zsh_source", 0), ("fish_source", 0), ("zs", 2)])
def test_scripts_of_other_shells(monkeypatch, capsys, asked, code):
    """They are printed; what is no shell is answered with those there are."""
    monkeypatch.setenv("_RANK_TRACECONV_COMPLETE", asked)
    assert completion.answer(cli) == code
    out, err = capsys.readouterr()
    assert ("rank-traceconv" in out, "zsh_source" in err) == (code == 0, code != 0)
