"""The census of what producers can write: complete, and as its page says."""

import pytest
from paths import ROOT

from tests.census import STATUSES, every, page

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
