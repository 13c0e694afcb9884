"""Captures damaged on purpose, and what is still read of them."""

from collections import Counter
from pathlib import PurePath

import traceconv
from traceconv.core.codes import Severity
from traceconv.core.errors import TraceconvError
from traceconv.core.model import Layer


class Outcome:
    """What reading a folder came to.

    Attributes:
        rows:   (layer, start, duration) of every event, and of every sample its value; how often.
                Times are those recorded: a damaged file may hold the offset to another clock.
        issues: of finding, of the events and of the tables beside them.
        error:  the message where nothing could be read at all, or "".
    """

    def __init__(self, folder):
        self.rows, self.issues, self.error = Counter(), [], ""
        try:
            found = traceconv.open(str(folder))
            self.issues += found.issues
            for trace in found.traces(align="none"):
                self._take(trace)
        except TraceconvError as e:
            self.error = str(e)

    def _take(self, trace):
        layers = [str(t.layer) for t in trace.tracks]
        e, c = trace.events, trace.counters
        columns = (e.track.tolist(), e.start_ns.tolist(), e.dur_ns.tolist())
        self.rows.update((layers[t], at, dur) for t, at, dur in zip(*columns, strict=True))
        columns = (c.start_ns.tolist(), c.value.tolist())
        self.rows.update((str(Layer.COUNTER), at, v) for at, v in zip(*columns, strict=True))
        for side_table in trace.side_tables.values():
            try:
                side_table.read()
            except TraceconvError as e:
                trace.issues.add("malformed-record", side_table.file, str(e)[:100])
            side_table.account(trace.issues)
        self.issues += trace.issues

    def made_up(self, whole, layered=True):
        """Rows that the whole capture has not. A slice that was never ended may be shorter.

        Args:
            layered: a row of another layer is another row; False where what names lanes may lie
                behind a cut.
        """
        if not layered:
            ours, theirs = (Counter(row[1:] for row in o.rows.elements()) for o in (self, whole))
            return ours - theirs
        extra = self.rows - whole.rows
        if any(issue.code == "unfinished-slice" for issue in self.issues):
            longest = {}
            for layer, start, dur in whole.rows:
                longest[layer, start] = max(dur, longest.get((layer, start), 0))
            extra = {k: n for k, n in extra.items() if k[2] > longest.get(k[:2], -1)}
        return extra

    def lost(self, whole):
        """How many rows of the whole capture are not there."""
        return (whole.rows - self.rows).total()

    def names(self, file, whole):
        """Codes of losses and doubts that name a file and that the whole capture has not."""
        before = {(i.code, i.file, i.count, i.places) for i in whole.issues}
        new = [i for i in self.issues if (i.code, i.file, i.count, i.places) not in before]
        base = PurePath(file).name
        grave = [i for i in new if i.severity is not Severity.INFO or i.code == "empty-file"]
        return [i.code for i in grave if base in i.file or any(base in p for p in i.places)]


def cuts(data, count):
    """Lengths to cut a file to: ``count`` of them spread over it, none where a line ends (what
    stood behind nobody can know), and the last bytes.
    """
    spread = {1, len(data) - 1, *(len(data) * i // count + i % 7 for i in range(1, count))}
    return sorted(n for n in spread if 0 < n < len(data) and data[n - 1 : n] != b"\n")
