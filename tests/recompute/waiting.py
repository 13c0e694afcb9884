"""Waiting for input: which rows of a trace say so, of which steps they tell, and for how long.

Ranges around fetching a batch, on threads that launch work or have marks of steps; operators and
marks that wait for the queue of data; fetches in the tables of queues. It counts while the device
is idle.
"""

import re
from bisect import bisect_right

from .intervals import Length, minus, union

_FRAMEWORKS = (
    lambda name: name.startswith("enumerate(DataLoader)#"),
    lambda name: (
        name.startswith("torch/utils/data/dataloader.py(") and name.endswith("): __next__")
    ),
    lambda name: name.endswith("_dataloader_next"),
    # Paddle's class, maybe with a path, a module, and the method called
    lambda name: re.fullmatch(
        r"_\w*DataLoaderIter\w*", re.split("[./:]", name.removesuffix(".__next__"))[-1]
    ),
)
_VERBS = {f"{verb}{ending}" for verb in ("load", "get", "fetch", "next", "wait", "read")
          for ending in ("", "ing")}  # fmt: skip
_FILLING = {"for", "next", "a", "the"}
_OBJECTS = {"data", "batch", "input", "inputs", "sample", "samples"}
_MODES = {"train", "val", "eval", "test"}
_WHOSE = {"data", "input", "batch"}
_DOING = {
    "load", "loader", "loading", "wait", "waiting", "fetch", "fetching", "time", "next", "iter",
    "iterator",
}  # fmt: skip
_LOADERS = {"dataloader", "dataload", "dataloading"}
_SAYING = {"next", "wait", "time"}


def says_input(name):
    """Whether a range of the host is about fetching input: by a framework, or by its words."""
    if any(fits(name) for fits in _FRAMEWORKS):
        return True
    words = [word for word in re.split(r"[\W_]+", name.lower()) if word]
    if words and words[0] in _VERBS:
        rest = words[1:-1]
        return len(words) > 1 and words[-1] in _OBJECTS and all(w in _FILLING for w in rest)
    words = words[1:] if words and words[0] in _MODES else words
    if words[:1] and words[0] in _LOADERS:
        words = words[1:]
    elif len(words) > 1 and words[0] in _WHOSE and words[1] in _DOING:
        words = words[2:]
    else:
        return False
    return not words or (len(words) == 1 and words[0] in _SAYING)


def fetches(rank):
    """Rows that wait for the queue of data: GetNext and InitData, whatever a path before says."""
    return [
        row for row in rank.rows
        if row.slice and row.lane.layer not in ("overlap", "scope") and _fetches(row.name)
    ]  # fmt: skip


def _fetches(name):
    last = name.rpartition("/")[2].removeprefix("Iterator")
    return any(
        last.startswith(word) and not last[len(word) :][:1].islower()
        for word in ("GetNext", "InitData")
    )


def leading(rank):
    """Threads that launch work or mark steps; none if no launch is recorded."""
    threads = {
        thread(begin.lane) for begin, end, _ in rank.arrows
        if begin.lane.layer in ("host", "runtime") and end.lane.layer in ("device", "comm")
    }  # fmt: skip
    if threads:
        threads |= {thread(r.lane) for r in rank.rows if r.lane.layer == "host" and r.step >= 0}
    return threads


def ranges(rank):
    """Ranges of the host that wait for input, on threads that keep the device waiting."""
    threads = leading(rank)
    return [
        row for row in rank.rows
        if row.slice and row.lane.layer not in ("overlap", "scope", "device", "comm", "step")
        and says_input(row.name) and (not threads or thread(row.lane) in threads)
    ]  # fmt: skip


def thread(lane):
    """What names the thread of a lane."""
    return lane.group, lane.name


def spans(known):
    """When a rank waits for input, whatever its device does."""
    rows = [*fetches(known.rank), *ranges(known.rank)]
    return union([*((row.start, row.end) for row in rows), *known.fact.stated.fetches()])


def measure(known):
    """Of each step the idle time that waits for input, None where nothing tells of it."""
    rank = known.rank
    own, host = fetches(rank), ranges(rank)
    queue = known.fact.stated.fetches()
    spans = union([*((row.start, row.end) for row in (*own, *host)), *queue])
    told = _told(rank, union([*((row.start, row.end) for row in own), *queue]), host)
    if rank.windows:
        spans = minus(spans, minus(spans, union(rank.windows)))
    waiting = [Length(minus(spans, busy)) for busy in busy_sets(known)]
    for step in known.steps:
        start, end = step.window
        if step.source == "timeline" and any(end > first and start < last for first, last in told):
            step.input_wait = sum(one.within(start, end) for one in waiting)


def _told(rank, fetched, host):
    """Spans of time in which waiting would have been seen: from the first to the last fetch; and
    what was recorded of the host in each window, where ranges of it say that it waits."""
    told = [(fetched[0][0], fetched[-1][1])] if fetched else []
    if host:
        starts, spans = [start for start, _ in rank.windows], {}
        for row in rank.rows:
            if row.lane.layer == "host":
                at = bisect_right(starts, row.start)
                first, last = spans.get(at, (row.start, row.end))
                spans[at] = (min(first, row.start), max(last, row.end))
        told += spans.values()
    return told


def busy_sets(known):
    """Per device when it is not idle: on NPUs copies are idle time."""
    classes = ("computing", "communication", "unclassified")
    classes += () if known.fact.ascend else ("copying",)
    return [
        union(pair for cls in classes for pair in sets.get(cls, ())) for sets in known.sets.values()
    ]


def pauses(known):
    """Of each step what is idle between its device window and that of the step before, of the same
    graph and recording window, if the device work of both is known."""
    every, before = [Length(busy) for busy in busy_sets(known)], {}
    for step in known.steps:
        last, before[step.graph] = before.get(step.graph), step
        if last is None or not every or "elsewhere" in (step.source, last.source):
            continue
        if step.period == last.period:
            start, end = last.window[1], max(step.window[0], last.window[1])
            step.pause = sum(end - start - one.within(start, end) for one in every)
