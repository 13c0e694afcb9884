"""SQL by DuckDB: Perfetto's tables, ours, parameters, and what a query must not do."""

import re
import threading
from pathlib import Path

import pytest
from paths import ROOT

import traceconv
from traceconv.cli import run
from traceconv.core.errors import EmptyResultError, MissingExtraError, OptionError, ResourceError
from traceconv.core.side_tables import ABSENT

pytest.importorskip("duckdb", reason="needs the extra sql")
pytest.importorskip("pyarrow", reason="needs the extra sql")

JOB = ROOT / "golden" / "trace_view" / "demo" / "input"
RECIPES = re.findall(
    r"(?m)^### (.+?)\n.*?^```sql\n(.*?)^```", (ROOT / "docs/guide/query.md").read_text(), re.DOTALL
)


def rows(sql, path=JOB, **given):
    found = traceconv.query(path, sql, engine="duckdb", **given)
    return list(zip(*(column.tolist() for column in found.columns.values()), strict=True))


@pytest.fixture(scope="module")
def traces():
    return list(traceconv.open(JOB).traces("detail"))


def test_slices_are_the_events_of_all_ranks(traces):
    """Names, and times since the first event, of every rank."""
    base = min(trace.span()[0] for trace in traces)
    expected = [
        (trace.rank, start - base, dur, trace.strings[name])
        for trace in traces
        for start, dur, name in zip(
            *(getattr(trace.events, key).tolist() for key in ("start_ns", "dur_ns", "name")),
            strict=True,
        )
    ]
    assert rows("select rank, ts, dur, name from slice order by id") == expected


def test_parents_hold_their_children():
    """A slice is within the one around it, one level deeper, on the same track."""
    sql = (
        "select count(*), count(*) filter (where c.ts < p.ts or c.ts + c.dur > p.ts + p.dur "
        "or c.depth != p.depth + 1 or c.track_id != p.track_id) "
        "from slice c join slice p on c.parent_id = p.id"
    )
    [(children, wrong)] = rows(sql)
    assert children > 0
    assert wrong == 0
    assert rows("select count(*) from slice where depth > 0") == [(children,)]


def test_flows_and_counters_are_all_there(traces):
    """As many as the model has, between slices of one rank, samples on tracks of counters."""
    flows, samples = (sum(len(getattr(t, n)) for t in traces) for n in ("flows", "counters"))
    sql = (
        "select count(*) from flow join slice a on slice_out = a.id join slice b on slice_in = b.id"
    )
    assert rows(f"{sql} where a.rank = b.rank and a.ts <= b.ts") == [(flows,)]
    sql = "select count(*) from counter join counter_track t on track_id = t.id"
    assert rows(sql) == [(samples,)]


def test_arguments_are_typed():
    """Whole numbers, text and fractions in their columns; nested ones by their path."""
    sql = "select key, int_value, string_value, value_type from slice join args using (arg_set_id) "
    where = "where slice.name like 'Default%' and key in ('debug.Task Type', 'debug.Task Id') "
    found = rows(sql + where + "order by slice.id, key limit 2")
    assert [(key, text, kind) for key, _, text, kind in found] == [
        ("debug.Task Id", None, "int"),
        ("debug.Task Type", "AI_VECTOR_CORE", "string"),
    ]
    assert found[0][1] >= 0
    assert found[1][1] == ABSENT
    sql = "select count(*) from slice where extract_arg(arg_set_id, 'debug.Task Type') = 'AI_CORE'"
    assert rows(sql)[0][0] > 0


def test_tables_of_stats_are_tables():
    """The columns of `stats`, with names that need no quotes."""
    steps = traceconv.stats(JOB, by="overlap")["overlap"]
    found = traceconv.query(JOB, "from overlap", engine="duckdb")
    assert len(found) == len(steps)
    assert found["idle_ns"].tolist() == steps["Idle(ns)"].tolist()
    with pytest.raises(EmptyResultError, match="npu_mem: no rank has data"):
        rows("from npu_mem")


def test_ranks_are_selected():
    """``ranks`` and ``time`` as in a merge."""
    assert rows("select distinct rank from slice", ranks=1) == [(1,)]
    [(early,)] = rows("select count(*) from slice", time=":5ms")
    assert 0 < early < rows("select count(*) from slice")[0][0]
    assert rows("select rank, host from ranks order by 1") == [(0, "localhost"), (1, "localhost")]


def test_captures_answer_the_same():
    """``captures.sql`` is ``query`` over what was found."""
    sql = "select rank, count(*) from events group by rank order by rank"
    found = traceconv.open(JOB).sql(sql)
    assert found.to_pandas if False else found.columns.keys()
    assert list(zip(*(c.tolist() for c in found.columns.values()), strict=True)) == rows(sql)
    assert rows("select count(*) from ranks", ranks=0) == [(1,)]
    one = traceconv.open(JOB).sql("select rank from ranks", ranks=1)
    assert one["rank"].tolist() == [1]
    with pytest.raises(OptionError, match="one trace file"):
        traceconv.open(JOB).sql(sql, engine="perfetto")
    assert {issue.code for issue in found.issues} == {"duration-rounded", "overlap-recomputed"}


def test_a_merged_trace_answers_like_its_captures(tmp_path):
    """The same rows from the captures and from the trace they were merged into."""
    out = tmp_path / "out.pftrace"
    traceconv.merge(JOB, out=out, mode="detail")
    sql = (
        "select name, category, count(*), sum(dur), min(ts) from slice group by 1, 2 order by 1, 2"
    )
    assert rows(sql, out) == rows(sql)


def test_only_what_is_named_is_made(monkeypatch):
    """A query that names no table reads no rank."""
    monkeypatch.setattr("traceconv.api.sql.read_ranks", None)
    assert rows("select 1 + 1") == [(2,)]


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from (select * from slice natural join counters)",
        "select count(columns('dep.*')) from slice where dur >= 0",
        "select max(s) from slice s",
        "from (pivot slice on depth using sum(dur) group by name) order by name",
        "select count(args), count(distinct args) from events",
        "select sum(arg_set_id), max(parent_id) from slice",
        "select max(typeof(name)), count(distinct op) from slice where name like 'H%'",
        "from slice order by id",
        "from events order by all",
        "select * exclude (track_id) from slice join track on track.id = track_id order by all",
    ],
)
def test_only_columns_that_are_read_are_made(sql):
    """Rows are the same however columns are named. All columns are made for several statements."""
    assert rows(sql) == rows(f"select 1; {sql}") != []


def test_a_column_that_there_is_not_is_refused_at_once(monkeypatch):
    """The SQL is checked before a rank is read."""
    monkeypatch.setattr("traceconv.api.sql.read_ranks", None)
    with pytest.raises(OptionError, match="nam"):
        rows("select nam from slice")


def test_results_are_exact():
    """Whole numbers to 64 bits, also sums; NULL is absent; SQLite's division and order of NULL."""
    sql = "select sum(v)::hugeint s, 7 / 2 as half, avg(v) a from (values ({0}), (1)) t(v)"
    assert rows(sql.format(2**62)) == [(2**62 + 1, 3, (2**62 + 1) / 2)]
    assert rows("select null::bigint n, null::text t, true b, 2.5 d") == [(ABSENT, None, 1, 2.5)]
    assert rows("select v from (values (2), (null), (1)) t(v) order by v")[0] == (ABSENT,)
    assert rows("select 18446744073709551615::ubigint u") == [("18446744073709551615",)]
    assert rows("select 1 a, 2 a") == [(1, 2)]
    other = "select date '2026-01-02' d, [1, 2] l, interval 1 day i, '-infinity'::date o, 'x'::blob"
    assert rows(other) == [("2026-01-02", "[1, 2]", "1 day", "-infinity", "78")]
    assert len(rows("from test_all_types()")) == 3


def test_parameters_are_bound():
    """A value is never a part of the SQL; one that lacks or is not used is an error."""
    sql = "select count(*) from slice where name = $name"
    assert rows(sql, params={"name": "Free' or 1=1 --"}) == [(0,)]
    assert rows(sql, params={"name": "Free"})[0][0] > 0
    assert rows("select $a + 1, $b", params=["a=41", "b=x=y"]) == [(42, "x=y")]
    with pytest.raises(OptionError, match=r"\$name has no value"):
        rows(sql)
    with pytest.raises(OptionError, match="'other' is not in the SQL"):
        rows("select 1", params={"other": 1})


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('{file}')",
        "from '{file}'",
        "from read_text('{file}')",
        "from read_blob('{folder}/*')",
        "from glob('{folder}/*')",
        "from read_json('{file}')",
        "from read_parquet('{file}')",
        "from sniff_csv('{file}')",
        "from query('from read_csv(''{file}'')')",
        "create table t (x text); copy t from '{file}'",
        "copy (select 1) to '{folder}/new'",
        "copy (select 1) to '{folder}/new' (format parquet)",
        "export database '{folder}/new'",
        "import database '{folder}'",
        "attach '{folder}/new.db'",
        "attach '{file}' (type sqlite)",
        "install httpfs",
        "force install httpfs from 'http://127.0.0.1:1'",
        "load httpfs",
        "load '{file}'",
        "from 'http://127.0.0.1:1/x.parquet'",
        "create secret s (type s3)",
        "create persistent secret s (type http)",
        "set enable_external_access = true",
        "reset enable_external_access",
        "set lock_configuration = false",
        "set allowed_directories = ['{folder}']",
        "set temp_directory = '{folder}/new'",
        "set home_directory = '{folder}'",
        "set memory_limit = '1TB'",
        "pragma enable_profiling = 'json'",
        "pragma profiling_output = '{folder}/new'",
        "set log_query_path = '{folder}/new'",
        "call enable_logging(storage = 'file', storage_path = '{folder}/new')",
        "from secret_variable",
        "select getenv('HOME')",
    ],
)
def test_a_query_reaches_nothing_outside(sql, tmp_path):
    """No files, no extensions, no network, no variables of Python, no other settings."""
    secret_variable = [("leaked",)]
    file = tmp_path / "secret.csv"
    file.write_text("leaked\n1\n")
    with pytest.raises(OptionError) as caught:
        rows(sql.format(file=file, folder=tmp_path))
    assert "leaked" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert secret_variable


def test_a_query_sees_no_folder_of_the_machine(monkeypatch):
    """Neither the home folder nor the current one, whatever is made of a setting."""
    monkeypatch.setenv("HOME", "/home/alice")
    shown = str(rows("from duckdb_settings()"))
    assert "alice" not in shown and str(Path.cwd()) not in shown


def test_memory_is_limited():
    """A query that needs more ends with an error that names the option."""
    with pytest.raises(ResourceError, match="mem_limit"):
        rows(
            "select count(*) from (select distinct x from range(100000000) t(x))", mem_limit="200M"
        )


def test_errors_say_what_to_do(tmp_path):
    """Unknown tables, PerfettoSQL, an engine that is missing."""
    with pytest.raises(OptionError, match="no table 'slcie' \\(did you mean 'slice'"):
        rows("select * from slcie")
    with pytest.raises(OptionError, match="PerfettoSQL runs with `engine='perfetto'`"):
        rows("include perfetto module slices.with_context")
    with pytest.raises(OptionError, match="`ranks`: works with DuckDB only"):
        traceconv.query(JOB, "select 1", engine="perfetto", ranks=1)
    with pytest.raises(OptionError, match="empty"):
        rows("-- nothing")


def test_without_an_engine_both_ways_are_named(monkeypatch):
    """How to get DuckDB, and how to use Perfetto's engine."""
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"'\.\[sql\]'.*engine='perfetto'"):
        traceconv.query(JOB, "select 1")


def test_the_command_line(tmp_path, capsys):
    """A file of SQL, parameters, formats; help where the SQL is missing."""
    file = tmp_path / "x.sql"
    file.write_text(
        "select name, dur from slice where dur > $least order by dur desc, name limit 2;"
    )
    command = ["query", str(JOB), f"@{file}", "--param", "least=5000000", "--engine", "duckdb"]
    assert run([*command, "--format", "csv", "-q"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "name,dur"
    assert run([*command, "-o", str(tmp_path / "x.parquet"), "-q"]) == 0
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(tmp_path / "x.parquet").column_names == ["name", "dur"]
    assert run(["query", str(JOB)]) == 2
    assert "SQL is missing" in capsys.readouterr().err
    assert run(["query", str(JOB), str(file)]) == 2
    assert f"pass @{file}" in capsys.readouterr().err
    assert run(["query", str(JOB), "@none.sql"]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(("title", "sql"), RECIPES, ids=[title for title, _ in RECIPES])
def test_recipes_run(title, sql):
    """The queries of the guide answer with rows."""
    given = dict.fromkeys(re.findall(r"\$(\w+)", sql), 1)
    assert rows(sql, params=given), title


def test_there_are_ten_recipes():
    assert len(RECIPES) >= 10


def test_a_query_can_run_in_any_thread():
    """Every query has a separate database."""
    found = []
    one = threading.Thread(target=lambda: found.append(rows("select count(*) from slice")))
    one.start()
    one.join()
    assert found == [rows("select count(*) from slice")]
    assert Path(JOB).is_dir()
