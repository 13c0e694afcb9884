"""The census of what producers can write: complete, and as its page says."""

import pytest
from paths import ROOT

from tests.census import STATUSES, every, page
from tests.census import __main__ as census_command

INVENTORIES = {f"{one.reader}: {one.title}": one for one in every()}


def test_the_page_is_what_the_lists_say():
    """``python -m tests.census`` prints it."""
    assert (ROOT / "docs/reference/census.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", INVENTORIES)
def test_every_entry_has_a_fate(name):
    """Each is listed once and has a known status."""
    one = INVENTORIES[name]
    assert len(set(one.entries)) == len(one.entries)
    assert {one.status(entry) for entry in one.entries} <= set(STATUSES)


@pytest.mark.parametrize("name", INVENTORIES)
def test_what_a_reader_names_is_in_the_list(name):
    """A reader that knows more than the producer's list says is out of step with it."""
    one = INVENTORIES[name]
    assert set(one.known) - set(one.entries) == set()


def test_names_that_a_source_has_and_no_list(tmp_path, capsys, monkeypatch):
    """A category of next year in a clone; other sources are listed as absent."""
    file = tmp_path / "pytorch+kineto" / "libkineto/include/ActivityType.h"
    file.parent.mkdir(parents=True)
    lines = ('{"kernel", ActivityType::CONCURRENT_KERNEL},', '{"npu_op", ActivityType::NPU_OP},')
    file.write_text("\n".join(lines))
    monkeypatch.setattr("sys.argv", ["census", "--sources", str(tmp_path)])
    assert census_command.main() == 1
    printed = capsys.readouterr().out
    assert "2 names, 1 unlisted npu_op" in printed
    assert "Ascend/msprof analysis/msmodel/sqe_type_map.py: not in" in printed


def test_fields_of_a_message_and_columns_of_tables():
    """Fields in a oneof are those of the message, fields of nested messages are not."""
    proto = (
        "message A { int32 x = 1; oneof b { int32 y = 2; } message C { int32 z = 1; } C c = 3; }"
    )
    assert census_command.names_in(proto, "A") == {"x", "y", "c"}
    columns = 'const TableColumns TASK = {{"startNs", SQL}, {"endNs", SQL}};'
    pattern = census_command.SOURCES[1][2]
    assert census_command.names_in(columns, pattern) == {"TASK.startNs", "TASK.endNs"}
