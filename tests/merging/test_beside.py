"""Bundles: what Perfetto traces hold beside events of ranks goes with them, as bytes."""

import json
import re
import tarfile
from collections import Counter

import pytest
from perfetto_files import BOOTED, FTRACE, with_system_data
from trace_bytes import packet

import traceconv
from traceconv.protobuf.message import fields, last_values


@pytest.fixture
def capture(tmp_path):
    """A file; its kinds of other packets are counted in COUNTED."""
    path = tmp_path / "rank0.pftrace"
    path.write_bytes(with_system_data())
    return path


COUNTED = {"ftrace_events": 5, "process_tree": 1, "perf_sample": 2, "android_log": 1}
UUID = {"trace_uuid": 1}
"""Packets that describe the recording."""


def merged(path, out, **options):
    given = {"mode": "detail", "rank_from": r"rank(\d+)", "force": True, **options}
    return traceconv.merge(path, out=out, **given)


def members(path):
    with tarfile.open(path) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}


def kinds(report, code):
    """Counts by kind, from the places of an issue."""
    found = Counter()
    for issue in report.issues:
        if issue.code == code:
            listed = ", ".join(issue.places).replace(" (describes the recording)", "")
            found.update({k: int(n) for k, n in (one.split(": ") for one in listed.split(", "))})
    return dict(found)


def others(data):
    """The packets of a member, as fields by number."""
    return [last_values(value) for _, _, value in fields(data)]


def test_counts_in_are_counts_out_and_what_is_reported(capture, tmp_path):
    """All kinds are counted as unread; all but the log are in the archive, once."""
    report = merged(capture, tmp_path / "x.tar")
    assert kinds(report, "perfetto-packet-unread") == COUNTED | UUID
    passed = {kind: n for kind, n in COUNTED.items() if kind != "android_log"}
    assert kinds(report, "perfetto-packet-beside") == passed
    inside = others(members(tmp_path / "x.tar")["system-0.pftrace"])
    numbers = Counter(n for one in inside for n in one)
    assert [numbers[n] for n in (1, 2, 66, 39, 11, 60, 89, 50)] == [5, 1, 2, 0, 0, 0, 0, 0]


def test_nothing_of_the_user_is_passed_on(capture, tmp_path):
    """Arguments and folders, user ids and logs stay behind; names of programs do not."""
    merged(capture, tmp_path / "x.tar")
    data = members(tmp_path / "x.tar")["system-0.pftrace"]
    assert not re.search(rb"hunter2|alice|/lib", data)
    assert b"server" in data and b"libc.so" in data and b"memcpy" in data
    assert all(3 not in one for one in others(data))


def test_clocks_and_state_go_with_the_packets(capture, tmp_path):
    """The snapshot comes first, and the state of a sequence is cleared where it was."""
    merged(capture, tmp_path / "x.tar")
    inside = others(members(tmp_path / "x.tar")["system-0.pftrace"])
    assert 126 in inside[0] and 6 in inside[1]
    samples = [one for one in inside if one.get(10) == 4]
    assert [(one.get(13), 12 in one, 66 in one) for one in samples] == [
        (1, True, False),
        (2, False, True),
        (2, True, True),
    ]


@pytest.mark.parametrize("align", ["auto", "none"])
def test_the_manifest_puts_the_clock_on_that_of_the_ranks(capture, tmp_path, align):
    """Stamps plus the offset are the times of the ranks, which count from the first event."""
    merged(capture, tmp_path / "x.tar", align=align)
    manifest = json.loads(members(tmp_path / "x.tar")["perfetto_manifest.json"])
    [rank, other] = manifest["perfetto_manifest"]["files"]
    assert other == {
        "path": "system-0.pftrace",
        "machine": {"name": "system-0"},
        "clocks": {"sync_to": {"file": rank["path"]}, "offset_ns": -BOOTED},
    }


def test_two_hosts_have_a_member_each(tmp_path):
    """With the offsets of their own clocks."""
    for i in range(2):
        (tmp_path / f"rank{i}.pftrace").write_bytes(with_system_data(late=i * 4_000))
    merged(tmp_path, tmp_path / "x.tar", align="meta")
    found = json.loads(members(tmp_path / "x.tar")["perfetto_manifest.json"])
    listed = {f["path"]: f.get("clocks", {}) for f in found["perfetto_manifest"]["files"]}
    ends = [listed[f"system-{i}.pftrace"]["offset_ns"] for i in range(2)]
    assert ends == [-BOOTED, 4_000 - BOOTED]


def test_an_archive_is_read_back_and_written_again(capture, tmp_path):
    """Ranks as they were, packets counted as before; written again, the same archive."""
    merged(capture, tmp_path / "x.tar")
    report = traceconv.convert(tmp_path / "x.tar", tmp_path / "y.tar")
    again = {k: n for k, n in COUNTED.items() if k != "android_log"}
    assert kinds(report, "perfetto-packet-unread") == again
    assert kinds(report, "perfetto-packet-beside") == again
    one, two = members(tmp_path / "x.tar"), members(tmp_path / "y.tar")
    assert one["system-0.pftrace"] == two["system-0.pftrace"]
    assert one["perfetto_manifest.json"] == two["perfetto_manifest.json"]
    assert traceconv.validate(tmp_path / "x.tar").ok


def test_a_member_that_was_taken_out_says_what_it_is(capture, tmp_path):
    """It has no ranks."""
    merged(capture, tmp_path / "x.tar")
    (tmp_path / "other.pftrace").write_bytes(members(tmp_path / "x.tar")["system-0.pftrace"])
    with pytest.raises(traceconv.TraceconvError, match=r"ftrace_events \(5\)"):
        traceconv.convert(tmp_path / "other.pftrace", tmp_path / "o.pftrace")


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "summary"},
        {"time": "0s:1s"},
        {"limit": "1M"},
        {"layers": ["host"]},
        {"out": ".pftrace"},
    ],
    ids=lambda o: next(iter(o)),
)
def test_what_cannot_be_narrowed_is_left_out(capture, tmp_path, options):
    """And counted as before."""
    out = tmp_path / f"x{options.pop('out', '.tar')}"
    report = merged(capture, out, **options)
    assert kinds(report, "perfetto-packet-unread") == COUNTED | UUID
    assert kinds(report, "perfetto-packet-beside") == {}
    assert out.suffix != ".tar" or "system-0.pftrace" not in members(out)


def test_damaged_packets_are_passed_over(capture, tmp_path):
    """They were counted when the file was read."""
    whole = capture.read_bytes()
    capture.write_bytes(whole + b"\x0a\x04\x0a\x7f\x00\x00" + packet(FTRACE, (10, 2)))
    report = merged(capture, tmp_path / "x.tar")
    counts = kinds(report, "perfetto-packet-beside")
    assert counts["ftrace_events"] == kinds(report, "perfetto-packet-unread")["ftrace_events"] == 6


def test_members_do_not_depend_on_workers(tmp_path):
    """Bytes are the same for any number."""
    for i in range(2):
        (tmp_path / f"rank{i}.pftrace").write_bytes(with_system_data(late=i * 4_000))
    made = [merged(tmp_path, tmp_path.parent / f"j{n}.tar", jobs=n) for n in (1, 2)]
    assert len(made) == 2
    one, two = ((tmp_path.parent / f"j{n}.tar").read_bytes() for n in (1, 2))
    assert one == two
