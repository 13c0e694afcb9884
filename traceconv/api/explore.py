"""A run for exploring: its losses by rank and step, gains of changes, and any window of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import orjson

from traceconv.analysis.replay import what_if as replayed
from traceconv.analysis.replay.job import Replay
from traceconv.api.diagnose import Diagnosis, diagnosed
from traceconv.api.merge import merged
from traceconv.api.open import Captures, found_below
from traceconv.core.errors import EmptyResultError
from traceconv.core.json_text import encoded
from traceconv.core.version import __version__
from traceconv.merging.run_report import Report
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.values import Progress, no_progress
from traceconv.options.verbs import DiagnoseOptions, ExploreOptions, MergeRequest
from traceconv.report import rank_map
from traceconv.store.cache import Kept

if TYPE_CHECKING:
    from traceconv.options.arguments import ExploreArguments

SCHEMA_VERSION = 1


@dataclass(eq=False, repr=False)
class Exploration:
    """A run that is read once, for many questions.

    Attributes:
        path:     of its captures.
        captures: of all its ranks, found once: of thousands that takes longer than a window.
        given:    keywords that find and read it.
    """

    path: str
    captures: Captures
    given: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<Exploration of {self.path}: {self.captures!r}>"

    def read(self, progress: Progress) -> None:
        """Read the ranks, unless this was done before.

        Raises:
            TraceconvError: see :func:`traceconv.diagnose`.
        """
        if "diagnosis" not in self.__dict__:
            keywords = {**self.given, "analyse": True, "progress": progress}
            options = DiagnoseOptions.of(keywords)
            self.__dict__["diagnosis"] = diagnosed([self.path], options, self.captures)
            self._answers.keep({0: encoded(self._document)})

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The problems of the run; reads it if that was not done before."""
        self.read(no_progress)
        diagnosis: Diagnosis = self.__dict__["diagnosis"]
        return diagnosis

    @property
    def replay(self) -> Replay | None:
        """Of the job; None where nothing may be concluded from one."""
        verdict = self.diagnosis.verdict
        job_replay: Replay | None = verdict.replay if verdict else None
        return job_replay if job_replay is not None and job_replay.usable else None

    @cached_property
    def _answers(self) -> Kept:
        """The cached content for these captures and options."""
        options = ExploreOptions.of(self.given)
        question = ["explore", SCHEMA_VERSION, options.align, options.run.allow_missing_ranks]
        found = self.captures.found
        ranks = Kept.of_captures(found, options.run.cache, least=0)
        return ranks.of(question).of_all(capture.rank for capture in found)

    def kept(self) -> dict[str, Any] | None:
        """The document that an earlier call on these files made, from the cache; None without."""
        content = next((content for _, content in self._answers.found()), None)
        return None if content is None else {**orjson.loads(content), "path": self.path}

    def as_dict(self) -> dict[str, Any]:
        """The JSON document: the verdict, the findings with their evidence, the map of ranks and
        steps, and the changes that can be tried. ``map`` says what is missing where the job cannot
        be replayed."""
        return self.kept() or {**self._document}

    @cached_property
    def _document(self) -> dict[str, Any]:
        document = self.diagnosis.document
        assert document is not None
        overview, replay = document["overview"], self.replay
        verdict = self.diagnosis.verdict
        why = (verdict.reason if verdict else "") or "ranks of one job are needed"
        return {
            "schema_version": SCHEMA_VERSION,
            "traceconv": __version__,
            "path": self.path,
            "ranks": document["ranks"],
            "headline": overview["headline"],
            "verdict": overview["verdict"],
            "straggler": overview["straggler"]["text"] if verdict else "",
            "tiles": overview["tiles"],
            "findings": overview["findings"],
            "remedies": overview["what_if"],
            "replay_error": replay.error if replay else None,
            "step_ns": round(replay.step_ns) if replay else None,
            "map": rank_map.rank_map(replay) if replay else {"missing": f"no data: {why}"},
            "changes": [*rank_map.knobs(replay, overview)] if replay else [],
        }

    def what_if(self, changes: Sequence[str]) -> dict[str, Any]:
        """The steps with some changes, as ``traceconv what-if --json`` says them.

        Raises:
            OptionError: a change is not understood.
            EmptyResultError: the job cannot be replayed.
        """
        replayed.refuse_unknown(changes)
        if self.replay is None:
            raise EmptyResultError("this job cannot be replayed")
        return replayed.what_if(self.replay, changes).as_dict()

    def report(self, ranks: str, steps: str) -> str:
        """The HTML report of a part of the run.

        Args:
            ranks, steps: as of ``--ranks`` and ``--steps``.

        Raises:
            TraceconvError: see :func:`traceconv.diagnose`.
        """
        if ranks == steps == "all":
            return self.diagnosis.html_text()
        keywords = {**self.given, "ranks": ranks, "steps": steps, "jobs": 1, "analyse": True}
        return diagnosed([self.path], DiagnoseOptions.of(keywords), self.captures).html_text()

    def window(self, ranks: str, steps: str, out: str) -> Report:
        """Write the trace of some steps of some ranks, in the detail mode.

        Raises:
            TraceconvError: see :func:`traceconv.merge`.
        """
        keywords = {**self.given, "ranks": ranks, "steps": steps, "jobs": 1}
        request = MergeRequest.of({**keywords, "mode": "detail", "out": out, "force": True})
        return merged([self.path], request, found=self.captures)


@takes(ExploreOptions)
def explore(path: values.AnyPath, **keywords: Unpack[ExploreArguments]) -> Exploration:
    """Read the run below ``path`` once, for many questions.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    given: dict[str, Any] = {**keywords}
    progress = given.pop("progress", None) or no_progress
    run = found_run(path, given)
    run.read(progress)
    return run


def found_run(path: values.AnyPath, given: Mapping[str, Any]) -> Exploration:
    """The run below ``path``, not read yet.

    Args:
        given: keywords of :func:`explore` but ``progress``.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: nothing is found; see :mod:`traceconv.core.errors`.
    """
    options = ExploreOptions.of(given)
    return Exploration(os.fspath(path), found_below([path], options.input), given)
