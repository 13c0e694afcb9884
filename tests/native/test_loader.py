"""Where compiled parts are loaded."""

import pytest

from traceconv import native

TIERED = (
    native.coder,
    native.packets,
    native.scanner,
    native.copier,
    native.wire,
    native.records,
    native.replay,
)


def test_compiled_parts_can_be_turned_off(monkeypatch):
    """All that have a Python tier."""
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    assert [part() for part in TIERED] == [None] * len(TIERED)


def test_parts_that_were_not_built_are_none(monkeypatch):
    """The Python tier does the work then."""

    def missing(name):
        raise ImportError(name)

    monkeypatch.delenv("TRACECONV_NATIVE", raising=False)
    monkeypatch.setattr(native, "import_module", missing)
    monkeypatch.setattr(native, "_built", native._built.__wrapped__)  # what was found is kept
    assert [part() for part in (*TIERED, native.allocator)] == [None] * (len(TIERED) + 1)


def test_the_allocator_has_no_python_tier(monkeypatch):
    """So it is never turned off."""
    if native.allocator() is None:
        pytest.skip("needs the compiled parts")
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    assert native.allocator() is not None


def test_every_compiled_part_is_one_that_version_tells_of(root):
    """What ``setup.py`` builds has a Python tier, or is the allocator."""
    text = (root / "setup.py").read_text()
    parts = text.partition("PARTS = {")[2].partition("\n}")[0]
    built = {line.split('"')[1] for line in parts.splitlines() if '"' in line}
    assert built == {*native.TIERS, "_memory"}
