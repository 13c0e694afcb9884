"""Copies input data that is not an event of a rank into an archive, as separate members.

This is done for a merge into an archive that keeps all events (nothing is selected except ranks,
without a limit, and not in the mode "summary"), because raw bytes cannot be filtered as events can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from traceconv.alignment.plan import Plan as Clocks
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.find import registry
from traceconv.options.groups import MergeOptions, Selection
from traceconv.readers import PassesOn
from traceconv.run.spill import SpilledRank
from traceconv.writers import ArchiveWriter, Beside, Document, Plan, WriterFactory

UNREAD = "perfetto-packet-unread"


class OtherSources:
    """The files of a merge that hold more than events.

    Attributes:
        issues: what was passed on; known when it has been written.
    """

    def __init__(
        self,
        captures: Sequence[Capture],
        spilled: Sequence[SpilledRank],
        clock: Clocks,
        base_ns: int,
    ) -> None:
        self.issues = Issues()
        self._files: list[tuple[PassesOn, Source, str, int]] = []
        self._base_ns = base_ns
        accounts = {rank.rank: rank.account for rank in spilled}
        placed_files: set[tuple[str, str]] = set()
        for capture in captures:
            account = accounts.get(-1 if capture.rank is None else capture.rank)
            if account is None or not account.issues.count(UNREAD):
                continue
            correction = clock.offsets[account.capture.rank or 0].correction
            start, end = account.span or (0, 0)
            middle = start // 2 + end // 2 - correction.offset_ns  # on its own clock, nearly
            for name, ns in capture.beside:
                reader = registry.reader_named(capture.reader)
                key = (capture.source.label, name)
                shift = ns + correction.of(middle) - middle
                if (
                    isinstance(reader, PassesOn)
                    and key not in placed_files
                    and abs(shift) <= INT64_MAX
                ):
                    placed_files.add(key)
                    self._files.append((reader, capture.source, name, shift))

    def into(self, document: Document) -> Document:
        """The head of the archive with the members."""
        # viewers read members in order of name, and release 52 fails if they are stored otherwise
        digits = len(str(max(len(self._files) - 1, 0)))
        members = [
            Beside(f"system-{i:0{digits}}.pftrace", shift - self._base_ns)
            for i, (_, _, _, shift) in enumerate(self._files)
        ]
        return replace(document, beside=tuple(members))

    def planned(self, plan: Plan) -> Plan:
        """The plan of the archive with what the members hold."""
        blocks = tuple(
            partial(reader.passed_on, source, name, shift, self.issues)
            for reader, source, name, shift in self._files
        )
        return replace(plan, parts=tuple(replace(part, beside=blocks) for part in plan.parts))


def keeps_all(options: MergeOptions, writer: WriterFactory) -> bool:
    """Whether a merge keeps all events, in an archive."""
    selects_all = replace(options.selection, ranks=None) == Selection()
    unlimited = options.limit is None and options.mode != "summary"
    return selects_all and unlimited and isinstance(writer(), ArchiveWriter)
