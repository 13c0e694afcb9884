"""Trace-event JSON to columns: what every reader of such files calls.

Files: an array of events or an object with ``traceEvents`` (other keys before and after), or one
event per line; plain or gzip. Not closed, with doubled commas, cut or damaged: what can be read
is. Times may be numbers or text; they are exact.

Which events become what: ``X``, and pairs of ``B`` and ``E``, are slices; ``i``, ``I``, ``R``
instants; ``C`` samples, each numeric argument a series of its own; ``s``, ``t``, ``f`` flows;
``b``, ``n``, ``e`` (and ``S``, ``T``, ``p``, ``F``) slices and instants on lanes of their own;
``T`` with a duration is the state of a thread, a slice on a lane of its own; ``M`` names. Other
phases are counted as ``unknown-phase``.

The work is done in the other modules of this package, by a C extension where there is one.
``TRACECONV_NATIVE=0`` in the environment leaves it out; the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError, SourceError
from traceconv.core.source import Source, Stream
from traceconv.io.window import MAX_RECORD_BYTES, Window
from traceconv.readers.shared.trace_events.assemble import assemble
from traceconv.readers.shared.trace_events.contract import (
    Classify,
    Incoming,
    Lane,
    Named,
    Names,
    Placed,
    Probes,
    Revise,
    Skipped,
)
from traceconv.readers.shared.trace_events.intake import Intake, hashed
from traceconv.readers.shared.trace_events.keys import Form, Keys, find_events
from traceconv.readers.shared.trace_events.native import Native, native_scanner, scanner_key
from traceconv.readers.shared.trace_events.placing import Naming
from traceconv.readers.shared.trace_events.salvage import Salvage, State, decoded
from traceconv.readers.shared.trace_events.tables import Tables

__all__ = [
    "Classify",
    "Incoming",
    "Lane",
    "Named",
    "Names",
    "Placed",
    "Probes",
    "Revise",
    "Skipped",
    "read_events",
]

CHUNK_BYTES = 256 << 10
"""Bytes decoded at a time: small enough to stay in the cache."""

MOST_BEHIND = 1 << 16
"""Fewer bytes than this, all blank, may follow a list that is there twice."""

PROBES = Probes()
"""What Ascend calls graphs and kinds of tasks."""

USED_KEYS = frozenset(("traceEvents", "displayTimeUnit"))
"""Members of the outermost object that are read, or only set how times are shown."""

Offset = Callable[[Mapping[str, Any]], int]
"""Given the other members of the outermost object: nanoseconds to add to every stamp."""


def read_events(
    source: Source,
    name: str,
    build: TraceBuilder,
    classify: Classify,
    probes: Probes = PROBES,
    offset_ns: Offset | None = None,
    revise: Revise | None = None,
    keep_fields: bool = False,
    used_keys: Collection[str] = USED_KEYS,
) -> tuple[int, int] | None:
    """Read one trace-event file into ``build``.

    Args:
        classify: asked once per lane, after all metadata of the file is known.
        offset_ns: asked once, after the file has been read; for files whose stamps count from a
            base named in the file (``baseTimeNanoseconds``). It comes before ``classify``.
        revise: called with every batch of slices and instants before it is added.
        keep_fields: whether what the model has no column for - categories, thread times, scopes,
            colours, stacks, fields of one tool - becomes the argument ``trace_event`` of slices and
            instants. All else that is not read is counted as ``event-field-unread``.
        used_keys: members of the outermost object that are used; others are counted, by name.

    Returns:
        Earliest start and latest end of the slices, ns; None without slices.

    Raises:
        MalformedInputError: nothing in it can be read as trace events.
    """
    reading = Reading(build, probes, keep_fields)
    reading.read(source, name, CHUNK_BYTES)
    offset = offset_ns(reading.keys) if offset_ns else 0
    build.skip_keys(reading.key_names - set(used_keys))
    return assemble(reading.tables, reading.naming, classify, build, offset, revise)


MAPPED_STEP, STREAM_STEP = 16, 4
"""Chunks that are brought at once for the native tier."""

SEVERAL = 256
"""Fewer events than this in front of an odd one, and the Python tier takes a whole chunk."""


class Reading:
    """One file on its way into tables.

    Attributes:
        tables: columns and accounts.
        naming: the metadata.
        keys:   other members of the outermost object, parsed.
    """

    def __init__(self, build: TraceBuilder, probes: Probes, keep: bool = False) -> None:
        self.tables, self.naming = Tables(), Naming()
        self.keys: dict[str, Any] = {}
        self.key_names: set[str] = set()
        self._build, self._probes, self._keep = build, probes, keep

    def read(self, source: Source, name: str, chunk_bytes: int) -> None:
        """Read the file.

        Raises:
            MalformedInputError: it holds no list of events, or none of them can be read.
        """
        with source.open(name) as stream:
            stays = stream.mapped is not None
            scanner = native_scanner(self._probes, stays, self._keep)
            steps = MAPPED_STEP if stays else STREAM_STEP
            window = Window(stream, chunk_bytes * steps if scanner else chunk_bytes)
            keys = Keys()
            form, junk = find_events(window, keys)
            if form is Form.OTHER:
                why = "no list of trace events in it; is it another kind of file?"
                raise MalformedInputError(source.title(name), "", why)
            if form is Form.EMPTY:
                self.tables.tally.add("empty-file")
                return
            self.tables.tally.add("skipped-bytes", "byte 0", junk)
            tiers = _Tiers(self, window, scanner, chunk_bytes)
            self._events(tiers, window, form, keys, partial(_repeats, source, name))
            self.keys = keys.found
            self.key_names = {name.decode("utf-8", "replace").strip('"') for name in keys.names}
            window.close()
        self._check(source.title(name))

    def _check(self, path: str) -> None:
        tally = self.tables.tally
        if self.tables.events:
            return
        if tally.count("malformed-record") or tally.count("truncated"):
            why = "not one trace event in it can be read; was it cut short? Export it again"
            raise MalformedInputError(path, "", why)
        if not tally.count("unknown-phase"):
            tally.add("empty-file")

    def _events(
        self, tiers: _Tiers, window: Window, form: Form, keys: Keys,
        repeats: Callable[[int, int, int], bool | None],
    ) -> None:  # fmt: skip
        """Take all events; ``window`` is at the first.

        Args:
            repeats: whether the file says the same again; see :func:`_repeats`.
        """
        begin = window.offset
        while True:
            state = tiers.read()
            endless = window.end - window.pos > MAX_RECORD_BYTES
            if state is State.ODD or (state is State.MORE and (endless or not window.more())):
                state = tiers.salvage_on()
            elif state is not State.END:
                continue
            if state is State.MORE:
                self._unclosed(tiers.salvage, window, form)
                return
            if state is State.END:
                end_of_list = window.offset
                window.pos += 1
                if form is Form.OBJECT:
                    keys.resume()
                    keys.seek(window)
                    if not keys.closed:
                        self.tables.tally.add("truncated", window.place(window.end))
                    else:
                        self._another(window, is_object=True)
                    return
                if not self._another(window):
                    return
                again = window.offset
                if (
                    end_of_list > begin
                    and (is_whole := repeats(begin, end_of_list, again)) is not None
                ):
                    # exported twice, into one file
                    tally, where = self.tables.tally, window.place(window.pos)
                    tally.add("repeated-content", where, self.tables.events if is_whole else 1)
                    if not is_whole:
                        tally.add("truncated", f"{where}: a second copy, cut off")
                    return

    def _unclosed(self, salvage: Salvage, window: Window, form: Form) -> None:
        """The file ends within the list of events."""
        cut = salvage.finish()
        tally, where = self.tables.tally, window.place(window.end)
        if window.broken and not cut:
            tally.add("truncated", window.broken)
        elif form is Form.OBJECT and not cut:
            tally.add("truncated", where)
        elif form is Form.ARRAY and not cut:
            tally.add("unclosed-array", where)

    def _another(self, window: Window, is_object: bool = False) -> bool:
        """Whether another list of events follows the first one; ``window`` is then in it.

        Other data is skipped, from the first byte that is not blank to the last one. So is
        everything after an object: a second object has its own clock and names.
        """
        start, first_byte, last_byte, between = window.offset, -1, 0, not is_object
        opened = False
        while True:
            text = bytes(window.data[window.pos : window.end])
            if between and (text_behind := text.lstrip(b" \t\r\n,")):
                if text_behind[:1] in (b"[", b"{"):
                    window.pos = window.end - len(text_behind) + (text_behind[:1] == b"[")
                    return True
                between = False
            if text.strip():
                if first_byte < 0:
                    first_byte = window.offset + len(text) - len(text.lstrip())
                    opened = text.lstrip().startswith(b"{") and b'"traceEvents"' in text
                last_byte = window.offset + len(text.rstrip())
            window.pos = window.end
            if not window.more():
                where = f"byte {start}"
                if is_object and opened:
                    extract = f"`tail -c +{first_byte + 1}` extracts it"
                    where = f"byte {first_byte}: another document; {extract}"
                self.tables.tally.add("skipped-bytes", where, last_byte - max(first_byte, 0))
                if not window.more() and window.broken:
                    self.tables.tally.add("truncated", window.broken)
                return False


def _repeats(source: Source, name: str, first: int, last: int, again: int) -> bool | None:
    """Whether a file says from offset ``again`` to its end what it says from ``first`` to ``last``:
    all of it, or only the beginning, because the file was cut off; None if it says other things.

    Offsets are those of the content, unpacked.
    """
    with source.open(name) as stream, source.open(name) as behind:
        _read(stream, first)
        _read(behind, again)
        for at in range(first, last, CHUNK_BYTES):
            size = min(CHUNK_BYTES, last - at)
            content, copy = _read(stream, size, kept=True), _read(behind, size, kept=True)
            if content != copy:
                return False if (copy or at > first) and content.startswith(copy) else None
        behind_copy = _read(behind, MOST_BEHIND, kept=True)
        ends = len(behind_copy) < MOST_BEHIND and not behind_copy.strip(b" \t\r\n]")
        return True if ends else None


def _read(stream: Stream, size: int, kept: bool = False) -> bytes:
    """The next ``size`` bytes, fewer at the end or where packed data is cut off; b"" if they are
    but passed over."""
    pieces = []
    with suppress(SourceError):
        while size > 0 and (piece := stream.read(min(size, CHUNK_BYTES))):
            size -= len(piece)
            pieces += [piece] if kept else []
    return b"".join(pieces)


class _Tiers:
    """The tiers over one file: native where it can, Python where it must."""

    def __init__(self, reading: Reading, window: Window, scanner: Any, chunk_bytes: int) -> None:
        build, tables = reading._build, reading.tables
        key = scanner_key(scanner) if scanner else hashed
        intake = Intake(tables, reading.naming, build, reading._probes, key, reading._keep)
        self._window, self._size = window, chunk_bytes
        self._address = build.attach(window.mapped) if window.mapped is not None else -1
        self._native = Native(scanner, build, tables, intake) if scanner else None
        self._span = chunk_bytes  # bytes for the Python tier where the scanner stopped
        self.salvage = Salvage(
            lambda records: intake.take(decoded(records, tables.tally)), tables.tally
        )

    def read(self) -> State:
        """Let a tier take what it can."""
        window = self._window
        if self._native is None:
            return self.salvage.read(window, self._size)
        state, n_taken = self._native.read(window), SEVERAL
        if state is not State.MORE or window.mapped is None:
            n_taken = self._native.take(window, self._address)
        self._span = self._size if n_taken < SEVERAL else 1
        return state

    def salvage_on(self) -> State:
        """Go on record by record, past what the last tier stopped at."""
        if self._native is not None:
            self._native.take(self._window, self._address)  # rows read before precede it
        return self.salvage.read(self._window, self._span)
