"""``python -m tests.census > docs/reference/census.md``: print the census.

``python -m tests.census --sources DIR`` compares its lists with the producers' sources instead, and
fails if one has a name that no list has. DIR holds clones, with or without a work tree, in folders
``OWNER/NAME`` or ``OWNER+NAME``; sources that are not there are named.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.census import every, page

MSPROF, RUNTIME, PERFETTO = "Ascend/msprof", "hicann/runtime", "google/perfetto"
_SERVICES, _DATABASE = "analysis/csrc/domain/services", "analysis/csrc/application/database"
_TASK_TYPE = r'\{\s*TS_TASK_TYPE_\w+,\s*"(?!reserve)(\w+)"'
_TRACK_EVENT = "protos/perfetto/trace/track_event"
_COLUMNS = r"const TableColumns (\w+)\s*=\s*\{(.*?)\};"

SOURCES = [
    (MSPROF, f"{_DATABASE}/db_constant.h", r'TABLE_NAME_\w+\s*=\s*"(\w+)"', "tables of msprof"),
    (MSPROF, f"{_DATABASE}/msprof_db.cpp", _COLUMNS, "columns of"),
    (MSPROF, f"{_SERVICES}/association/ascend_task_association.cpp", r'"([A-Z][A-Z\d_]{2,})"',
     "types of"),
    (MSPROF, "analysis/msmodel/sqe_type_map.py", r"\n +([A-Z][A-Z\d_]+) = \d+", "types of"),
    ("Ascend/pytorch", "torch_npu/profiler/analysis/prof_common_func/_constant.py",
     r'TABLE_\w+\s*=\s*"(\w+)"', "databases"),
    ("Ascend/msprof-analyze", "msprof_analyze/prof_common/constant.py",
     r'TABLE_CLUSTER\w+\s*=\s*"(\w+)"', "tables of cluster_analysis.db"),
    (RUNTIME, "src/runtime/core/src/common/profiling_agent.cc", _TASK_TYPE, "runtime tasks"),
    (RUNTIME, "src/runtime/core/src/task/task_info/task_manager.cc", _TASK_TYPE, "runtime tasks"),
    ("pytorch/kineto", "libkineto/include/ActivityType.h", r'\{"([a-z]\w+)",\s*ActivityType::',
     "categories"),
    ("intel/pti-gpu", "tools/unitrace/src/levelzero/ze_collector.h", r'"(zeCommandList\w+)"',
     "commands of unitrace"),
    ("ROCm/rocm-systems", "projects/rocprofiler-sdk/source/include/rocprofiler-sdk/fwd.h",
     r"ROCPROFILER_BUFFER_TRACING_(?!LAST)(\w+),", "kinds of buffer tracing"),
    (PERFETTO, "protos/perfetto/trace/trace_packet.proto", "TracePacket", "fields of TracePacket"),
    *(
        (PERFETTO, f"{_TRACK_EVENT}/{file}.proto", message, f"fields of {message}")
        for file, message in (
            ("track_event", "TrackEvent"), ("track_descriptor", "TrackDescriptor"),
            ("process_descriptor", "ProcessDescriptor"), ("thread_descriptor", "ThreadDescriptor"),
            ("counter_descriptor", "CounterDescriptor"),
        )
    ),
]  # fmt: skip
"""Repository, file, what finds the names in it (a pattern, or a message), and part of the titles of
the lists that have these names."""


def main() -> int:
    """Print the census, or what the sources have beyond it."""
    parser = argparse.ArgumentParser(prog="python -m tests.census", description=__doc__)
    parser.add_argument("--sources", type=Path, metavar="DIR", help="the folder of the clones")
    folder = parser.parse_args().sources
    if folder is None:
        sys.stdout.write(page())
        return 0
    missing = 0
    for repository, path, pattern, title in SOURCES:
        text = text_of(folder, repository, path)
        if text is None:
            print(f"{repository} {path}: not in {folder}")
            continue
        names, listed = names_in(text, pattern), {*entries(title)}
        if pattern == _COLUMNS:  # tables that only describe others have no list of columns
            tables = {name.partition(".")[0] for name in listed}
            names = {name for name in names if name.partition(".")[0] in tables}
        unlisted = sorted(names - listed)
        missing += len(unlisted)
        print(f"{repository} {path}: {len(names)} names, {len(unlisted)} unlisted", *unlisted)
    return 1 if missing else 0


def entries(title: str) -> Iterator[str]:
    """The names of all lists with a title; those of columns with their table in front."""
    for one in every():
        if title in one.title:
            table = one.title.removeprefix("columns of ")
            for entry in one.entries:
                alone = title != "columns of" or "." in entry
                yield entry if alone else f"{table}.{entry}"


def names_in(text: str, pattern: str) -> set[str]:
    """The names that a pattern finds, or the fields of a message."""
    if pattern == _COLUMNS:
        tables = re.findall(pattern, text, re.DOTALL)
        return {
            f"{t}.{column}" for t, rows in tables for column in re.findall(r'\{\s*"(\w+)"', rows)
        }
    if "(" in pattern:
        return {*re.findall(pattern, text)}
    plain = re.sub(r"//.*", "", text)
    body = plain[re.search(rf"\bmessage {pattern}\s*\{{", plain).end() :]
    inside, found = [], set()
    for part in re.findall(r"[^{};]*[{};]", body):
        if part.endswith("{"):
            inside.append("oneof" in part.split())
        elif part.endswith("}"):
            if not inside:
                break
            inside.pop()
        elif all(inside) and (field := re.search(r"(\w+)\s*=\s*\d+", part)):
            found.add(field[1])
    return found


def text_of(folder: Path, repository: str, path: str) -> str | None:
    """A file of a clone; None if it is not there."""
    for name in (repository, repository.replace("/", "+")):
        clone = folder / name
        if (clone / path).is_file():
            return (clone / path).read_text(encoding="utf-8")
        for bare in (clone, clone / "repo"):
            if (bare / "HEAD").is_file():
                command = ["git", f"--git-dir={bare}", "show", f"HEAD:{path}"]
                shown = subprocess.run(command, capture_output=True, text=True, check=False)
                return None if shown.returncode else shown.stdout
    return None


if __name__ == "__main__":
    sys.exit(main())
