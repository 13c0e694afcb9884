"""A sample of ``python -m tests.faults``: whatever happens, final names hold whole outputs."""

from random import Random

import pytest
from effort import effort

from tests import faults

COMMANDS = {command.name: command for command in faults.COMMANDS}


@pytest.fixture(scope="module", params=["merge", "shard, join", "salvage"])
def reference(request):
    """A command, and what it writes when nothing goes wrong."""
    with faults.prepared() as place:
        yield faults.Reference(COMMANDS[request.param], place)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["kill -9", "files limited", "rename fails", "folder gone"])
def test_outputs_are_whole_or_absent(reference, kind):
    """And the next run leaves nothing of the one before."""
    row = faults.Row()
    fault, of = faults.KINDS[kind]
    assert reference.command.name in of
    for number in range(effort(2, 40)):
        fault(reference, Random(f"{kind} {number}"), row)
    assert (row.survived, row.why) == (row.tried, [])


@pytest.mark.parametrize("kind", ["input shrunk", "input replaced"])
def test_inputs_may_change_while_they_are_read(kind):
    """The output is that of the old or the new content, or there is an error with a name."""
    with faults.prepared() as place:
        reference, row = faults.Reference(COMMANDS["copy"], place), faults.Row()
        for number in range(effort(2, 40)):
            faults.KINDS[kind][0](reference, Random(f"{kind} {number}"), row)
    assert (row.survived, row.why) == (row.tried, [])
