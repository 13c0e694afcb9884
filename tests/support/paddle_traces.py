"""Traces the Paddle reader makes of files written for one test, and what tests ask of them."""

import random

import numpy as np
from paddle_files import T0, Host, Recording

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.io.sources import sources
from traceconv.readers.paddle import reader as paddle

STAMP = "time_2025_02_19_21_20_{:02d}_000137.paddle_trace"


def write(folder, worker, data, second=0, kind=None):
    """A file named as Paddle names its exports."""
    kind = kind or ("json" if isinstance(data, str) else "pb")
    path = folder / f"{worker}_{STAMP.format(second)}.{kind}"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def find(path):
    """What the reader finds below a path, with the issues of finding."""
    (source,) = sources([str(path)])
    issues = Issues()
    return paddle.READER.find(source, source.names(), issues), issues


def read(path):
    """The trace of the only capture below a path."""
    ((capture,), _) = find(path)
    build = TraceBuilder(capture)
    paddle.READER.read(capture, build)
    return build.finish()


def read_json(tmp_path, text):
    return read(write(tmp_path, "rank0", text))


def rows(trace):
    """Every slice: layer, heading, group, track, name, start from T0, duration, class, step."""
    events, found = trace.events, []
    for i in np.flatnonzero(events.kind == 0).tolist():
        track = trace.tracks[events.track[i]]
        found.append(
            (
                *(str(track.layer), track.heading, track.group, track.name),
                *(trace.strings[events.name[i]], int(events.start_ns[i]) - T0),
                *(int(events.dur_ns[i]), int(events.op[i]), int(events.step[i])),
            )
        )
    return sorted(found)


def named(trace, name):
    """Starts from T0 and durations of the slices of one name."""
    return [(row[5], row[6]) for row in rows(trace) if row[4] == name]


def arrows(trace):
    """Names at both ends of every arrow."""
    name = [trace.strings[n] for n in trace.events.name.tolist()]
    ends = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
    return sorted((name[a], name[b]) for a, b in ends)


def codes(trace):
    """Issues by code, without the colours that every record of the JSON has."""
    unread = "event-field-unread"
    return {issue.code: issue.count for issue in trace.issues if issue.code != unread}


def many(count=400, seed=5, gap=9_000):
    """A recording of operators whose starts fall anywhere within a microsecond."""
    rng, at, hosts = random.Random(seed), 0, []
    for i in range(count):
        dur = rng.randrange(200, gap - 1_000)
        hosts.append(Host(f"op{i}", "Operator", at, at + dur))
        at += dur + rng.randrange(1, 1_000)
    return Recording(hosts)
