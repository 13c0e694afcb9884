"""Merging in several runs: each reads its share of the ranks, the last one joins the shares.

A shard is a folder that is complete when it exists: ``shard.json``, and one file per rank
(:mod:`.rank_file`) that needs no other file. All shards of a merge can be joined, on any machine,
to what one run would have written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceconv.core.errors import (
    InputError,
    Issues,
    MalformedInputError,
    OptionError,
    OutputPathError,
    SourceError,
    TraceconvError,
)
from traceconv.core.model import Capture
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.version import SHARD as VERSION
from traceconv.io.atomic import refuse_existing, replacing_folder
from traceconv.io.run_files import read_from
from traceconv.io.storage import is_url
from traceconv.merging.merge_ranks import Ranks, of_dumps, reading
from traceconv.options.groups import MergeOptions, RunOptions
from traceconv.run.executor import Executor
from traceconv.run.rank_loop import book_failure, map_ranks
from traceconv.run.spill import RankAccount, SpilledRank
from traceconv.store import rank_file

SUFFIX = ".shard"

_ABOUT = "shard.json"
_LARGEST = 64 << 20


@dataclass(frozen=True)
class Shard:
    """The description of a shard; JSON values.

    Attributes:
        index, of: its number, from 0, and how many there are.
        ranks:     of the whole merge.
        options:   of the merge, equal in all its shards.
        spilled:   names of its files, one per rank.
        failed:    ranks of it that could not be read: [rank, file, reason].
        issues:    what finding the captures noted, see
            :func:`traceconv.store.rank_file.issue_rows`.
    """

    index: int
    of: int
    ranks: list[int]
    options: Mapping[str, Any]
    spilled: list[str] = field(default_factory=list)
    failed: list[list[Any]] = field(default_factory=list)
    issues: list[list[Any]] = field(default_factory=list)


def check(path: str, force: bool, index: int, of: int) -> None:
    """Refuse early what could not be written later.

    Raises:
        OptionError: there is no such shard.
        OutputPathError: its name is none, its folder is missing, or it is there already.
    """
    if not 0 <= index < of:
        highest = f"{of - 1}/{of}"
        raise OptionError(f"no shard {index}/{of}: they count from 0/{of} to {highest}", "shard")
    if is_url(path):
        raise OutputPathError(
            f"{path}: a shard is a folder of files that are mapped; name one on disk"
        )
    if not path.endswith(SUFFIX):
        raise OutputPathError(f"{path}: the name of a shard ends in {SUFFIX}")
    target = Path(path).resolve()
    if not target.parent.is_dir():
        raise OutputPathError(f"{path}: its folder {target.parent} does not exist; create it")
    refuse_existing(path, target.exists(), force)
    if target.exists() and not (target / _ABOUT).is_file():
        raise OutputPathError(f"{path}: exists and is not a shard; choose another path")


def describe(folder: Path, shard: Shard) -> None:
    """Write the description of the shard in ``folder``."""
    (folder / _ABOUT).write_text(json.dumps({"version": VERSION, **vars(shard)}, indent=1))


def load(path: str) -> Shard:
    """The description of the shard ``path``.

    Raises:
        SourceError: it is not there, or no shard.
        MalformedInputError: it is broken, or of another version.
    """
    about = Path(path) / _ABOUT
    try:
        if about.stat().st_size > _LARGEST:
            raise MalformedInputError(str(about), "", "larger than a shard's description can be")
        plain = json.loads(about.read_bytes())
        version = plain.pop("version")
        if version != VERSION:
            why = f"is of version {version}, not {VERSION}; join with the traceconv that wrote it"
            raise MalformedInputError(path, "", why)
        shard = Shard(**plain)
        _check(shard)
    except OSError as e:
        raise SourceError(f"{path}: not a shard: {e.strerror or e}") from e
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise MalformedInputError(str(about), "", f"not the description of a shard: {e}") from e
    return shard


def _check(shard: Shard) -> None:
    """Raise ValueError or TypeError if it makes no sense."""
    if not 0 <= shard.index < shard.of or not isinstance(shard.options, dict):
        raise ValueError("no number or no options")
    if any(Path(name).name != name for name in shard.spilled):
        raise ValueError("files outside the shard")
    if any(not isinstance(rank, int) for rank in shard.ranks):
        raise ValueError("ranks that are not numbers")
    if any([type(value) for value in failure] != [int, str, str] for failure in shard.failed):
        raise ValueError("malformed failures")


def together(paths: Sequence[str], allow_missing: bool) -> list[tuple[Path, Shard]]:
    """The shards of one merge, by number.

    Raises:
        InputError: they are not of one merge, one is doubled, or one is missing and
            ``allow_missing`` is off.
    """
    by_number: dict[int, tuple[Path, Shard]] = {}
    loaded = [(Path(path), load(path)) for path in paths]
    if not loaded:
        raise InputError("no shards given")
    first_path, first = loaded[0]
    for path, shard in loaded:
        if difference := _what_differs(shard, first):
            raise InputError(f"{first_path} and {path} are not of one merge: {difference}")
        if shard.index in by_number:
            raise InputError(f"{by_number[shard.index][0]} and {path} are both shard {shard.index}")
        by_number[shard.index] = (path, shard)
    missing = sorted(set(range(first.of)) - set(by_number))
    if missing and not allow_missing:
        names = ", ".join(f"{i}/{first.of}" for i in missing[:20])
        raise InputError(f"shard {names} is missing; name it, or pass `allow_missing_ranks=True`")
    return [by_number[i] for i in sorted(by_number)]


def _what_differs(shard: Shard, other: Shard) -> str:
    """In what two shards differ that they may not; "" if they fit."""
    if shard.of != other.of:
        return f"there are {other.of} shards of one and {shard.of} of the other"
    if shard.ranks != other.ranks:
        return "they found different ranks"
    keys = {*shard.options, *other.options}
    unlike = sorted(k for k in keys if shard.options.get(k) != other.options.get(k))
    return f"they differ in {', '.join(unlike)}" if unlike else ""


def write_shard(
    captures: Sequence[Capture],
    number: tuple[int, int],
    options: MergeOptions,
    path: str,
    issues: Issues,
    executor: Executor,
    run: RunOptions,
) -> dict[int, RankAccount]:
    """Read the share ``number`` of ``captures`` and leave it in the folder ``path``.

    Args:
        issues: what finding all captures noted; gets what reading these notes.

    Returns:
        What is known of each rank that was read.

    Raises:
        TraceconvError: a rank of it cannot be read, and that is not allowed.
    """
    index, of = number
    noted = rank_file.issue_rows(list(issues))
    spilled: list[str] = []
    accounts: dict[int, RankAccount] = {}
    failed: list[list[Any]] = []

    def note(capture: Capture, error: TraceconvError) -> None:
        failed.append([capture.rank, capture.title, str(error)])

    with replacing_folder(Path(path)) as folder:
        work = reading(captures, options, folder, alone=True)
        share = captures[index::of]
        for _, spilled_rank in map_ranks(work, share, executor, run, issues, failed=note):
            spilled.append(spilled_rank.path.name)
            accounts[spilled_rank.rank] = spilled_rank.account
        ranks = [c.rank for c in captures if c.rank is not None]
        describe(folder, Shard(index, of, ranks, options.as_dict(), spilled, failed, noted))
    return accounts


def join_shards(paths: Sequence[str], allow_missing: bool) -> tuple[Ranks, MergeOptions]:
    """The ranks of all shards, as one run would have them, and the options of their merge.

    Raises:
        InputError: the shards do not make a merge; a rank failed or is missing, and
            ``allow_missing`` is off.
    """
    shards = together(paths, allow_missing)
    first_shard = shards[0][1]
    try:
        options, issues = MergeOptions.of_dict(first_shard.options), Issues()
        issues.extend(rank_file.issues_of(first_shard.issues))
    except (TypeError, ValueError, KeyError, IndexError) as e:
        raise MalformedInputError(str(shards[0][0]), "", f"its options do not fit: {e}") from e
    spilled = sorted(
        (
            SpilledRank((folder / name).absolute())
            for folder, shard in shards
            for name in shard.spilled
        ),
        key=lambda rank_in_shard: rank_in_shard.rank,
    )
    read_from(rank_in_shard.path for rank_in_shard in spilled)
    failed = sorted(failure for _, shard in shards for failure in shard.failed)
    for rank, where, reason in failed:
        if not allow_missing:
            raise InputError(f"rank {rank} could not be read: {reason}")
        book_failure(issues, rank, where, reason)
    present = {rank_in_shard.rank for rank_in_shard in spilled} | {rank for rank, _, _ in failed}
    missing = sorted(set(first_shard.ranks) - present)
    if len(spilled) > len({rank_in_shard.rank for rank_in_shard in spilled}) or not spilled:
        raise InputError(f"{', '.join(paths)}: no rank, or one rank twice")
    if missing and not allow_missing:
        raise InputError(f"rank {format_ranges(missing)} is in none of the shards")
    for rank in missing:
        issues.add("rank-missing", where=f"rank {rank}")
    captures = tuple(rank_in_shard.account.capture for rank_in_shard in spilled)
    return Ranks(captures, tuple(spilled), issues, of_dumps(captures)), options
