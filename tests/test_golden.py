"""Known input, readable expectation: one test over every golden case."""

import pytest
from decoded import decode
from golden_cases import CASES, Case, issue_lines
from paths import ROOT

from traceconv import TraceconvError
from traceconv.core.model import Layer

ANSWERS = ("events.txt", "summary.txt", "detail.txt", "issues.txt")


def as_a_viewer_sees_it(path):
    """The rows a viewer makes of a trace, by track, nested by depth, then its arrows."""
    seen = decode(path)
    lines = []
    for number, track in sorted(enumerate(seen.tracks), key=lambda t: t[1].path):
        rows = [f"    {'  ' * r[2]}{r[0]} +{r[1]} {r[3]}" for r in rows_on(seen.rows, number)]
        rows += [f"    {ts} = {value!r}" for ts, value in samples_on(seen.counters, number)]
        if rows:
            lines += [" > ".join(track.path) + (f" ({track.unit})" if track.unit else ""), *rows]
    ends = zip(seen.flows.source, seen.flows.target, strict=True)
    lines += sorted(f"{row_title(seen.rows, a)} -> {row_title(seen.rows, b)}" for a, b in ends)
    return "\n".join(lines) + "\n"


def rows_on(rows, track):
    at = [i for i in range(len(rows)) if rows.track_id[i] == track]
    return [(rows.ts[i], rows.dur[i], int(rows.depth[i]), rows.name[i]) for i in at]


def samples_on(counters, track):
    at = [i for i in range(len(counters)) if counters.track_id[i] == track]
    return [(counters.ts[i], float(counters.value[i])) for i in at]


def row_title(rows, row):
    return f"{' > '.join(rows.track[row])} @{rows.ts[row]} {rows.name[row]}"


def answers(case):
    """Every expected file's content, as it is now."""
    trace, report = case.merged("pftrace", "detail")
    return {
        "events.txt": case.usual_text("detail"),
        "summary.txt": case.usual_text("summary"),
        "detail.txt": as_a_viewer_sees_it(trace),
        "issues.txt": issue_lines(report.issues),
    }


def test_case_fails_as_it_shows(bad, tmp_path):
    """Its error says what the case expects it to."""
    with pytest.raises(TraceconvError) as caught:
        bad.merge(tmp_path / "out.txt", "detail")
    assert bad.error in str(caught.value)


def test_case_gives_what_it_shows(good, update_golden):
    """The views, the Perfetto output read back and the issues are those under ``expect/``."""
    now = answers(good)
    expect = good.folder / "expect"
    if update_golden:
        expect.mkdir(exist_ok=True)
        for name, text in now.items():
            (expect / name).write_text(text, encoding="utf-8")
    missing = [name for name in ANSWERS if not (expect / name).exists()]
    assert missing == [], "make golden writes them; then read them"
    assert {name: (expect / name).read_text(encoding="utf-8") for name in ANSWERS} == now


def test_case_says_what_it_is(golden):
    """A case names what it shows, who wrote such files and how it was cut down, and is small."""
    assert golden.shows
    assert golden.written_by
    assert golden.cut_down
    assert sum(f.stat().st_size for f in golden.folder.glob("input/**/*") if f.is_file()) < 400_000


def test_case_names_no_place_or_person(golden):
    """No home folder, host or address is in a sample."""
    text = b"".join(f.read_bytes() for f in sorted(golden.folder.glob("input/**/*")) if f.is_file())
    assert [word for word in (b"/home/", b"/root/", b"/Users/", b"192.168.") if word in text] == []


def test_every_reader_has_a_good_and_a_broken_case():
    """What a reader does with bad input is as much part of it as what it does with good."""
    from traceconv.find import registry

    own = [n for n, r in registry.readers().found.items() if r.__module__.startswith("traceconv.")]
    lacking = []
    for name in own:
        cases = [case for case in CASES if case.reader == name]
        if {is_broken(case) for case in cases} != {True, False}:
            lacking.append(name)
    assert lacking == []


def is_broken(case):
    issues = case.folder / "expect" / "issues.txt"
    codes = issues.read_text(encoding="utf-8") if issues.exists() else ""
    return bool(
        case.broken or {"truncated", "malformed-record", "skipped-bytes"} & set(codes.split())
    )


def test_bundled_sample_is_what_its_generator_writes(tmp_path):
    """``examples/make_sample.py`` makes the same bytes as those that are bundled."""
    import runpy

    maker = runpy.run_path(str(ROOT / "examples" / "make_sample.py"))
    maker["write_sample"](tmp_path)
    bundled = ROOT / "golden" / "trace_view" / "demo" / "input"
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.json")}
    assert {p.relative_to(bundled): p.read_bytes() for p in bundled.rglob("*.json")} == made


def test_sample_shows_every_kind_of_lane(tmp_path):
    """The bundled sample has something on every layer but the one for leftovers."""
    case = Case(ROOT / "golden" / "trace_view" / "demo")
    import traceconv

    traces = traceconv.open(str(case.folder / "input")).traces("detail", scope=True)
    layers = {track.layer for trace in traces for track in trace.tracks}
    assert set(Layer) - {Layer.OTHER} == layers


def test_made_perfetto_traces_are_what_their_maker_writes():
    """``tests/support/perfetto_files.py`` makes the inputs of the cases it names."""
    import perfetto_files

    made = dict(perfetto_files.inputs(ROOT / "golden"))
    assert {path: path.read_bytes() for path in made} == made
