"""Columns of text of one rank: few different texts, on many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.columns import I64, Mask
from traceconv.core.patterns import lazy_regex

_SPARE = 64  # texts that no row has may be kept, and those that more than half the rows have not

_WHOLE = lazy_regex(r"-?[0-9]{1,18}")


class Texts:
    """A column of text. Functions of texts are evaluated once per distinct text.

    Attributes:
        values: texts; one may occur twice, and some on no row.
        code:   integers, one per row: which of ``values`` it is.
    """

    __slots__ = ("code", "values")

    def __init__(self, values: Sequence[str], code: NDArray[Any]) -> None:
        self.values, self.code = values, code

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """The column with these texts."""
        number: dict[str, int] = {}
        code = [number.setdefault(text, len(number)) for text in texts]
        return cls(list(number), np.array(code, np.int32))

    @classmethod
    def same(cls, text: str, rows: int) -> Texts:
        """A column with one text on every row."""
        return cls((text,), np.zeros(rows, np.int32))

    @classmethod
    def concat(cls, columns: Sequence[Texts]) -> Texts:
        """All rows of ``columns``, in order."""
        if not columns:
            return cls.same("", 0)
        values: list[str] = []
        codes = []
        for column in columns:
            codes.append(column.code + len(values))
            values.extend(column.values)
        return cls(values, np.concatenate(codes))

    def __len__(self) -> int:
        return len(self.code)

    def __getitem__(self, rows: Any) -> Texts:
        """The rows an index array, mask or slice names."""
        values, code = self.values, self.code[rows]
        if len(values) > 2 * len(code) + _SPARE:
            used, code = np.unique(code, return_inverse=True)
            values = [values[i] for i in used.tolist()]
        return Texts(values, code)

    def at(self, row: int) -> str:
        """The text of one row."""
        return self.values[int(self.code[row])]

    def tolist(self) -> list[str]:
        """The text of every row."""
        return list(map(self.values.__getitem__, self.code.tolist()))

    def column(self) -> NDArray[Any]:
        """The text of every row, as tables have it."""
        row_texts: NDArray[Any] = np.array(self.values, object)[self.code]
        return row_texts

    def fitting(self, fits: Callable[[str], object]) -> Mask:
        """On which rows a pattern, or another test, accepts the text."""
        fitting: Mask = np.array([bool(fits(text)) for text in self.values], bool)[self.code]
        return fitting

    def among(self, *texts: str) -> Mask:
        """On which rows it is one of these."""
        return self.fitting(texts.__contains__)

    @property
    def known(self) -> Mask:
        """On which rows it is not empty."""
        return self.fitting(bool)

    def mapped(self, change: Callable[[str], str]) -> Texts:
        """What ``change`` of the text of every row is, where that is text."""
        return Texts(list(map(change, self.values)), self.code)

    def filled(self, others: Texts) -> Texts:
        """The text of ``others`` for empty texts."""
        is_known = self.known
        if is_known.all():
            return self
        return self.where(is_known, others) if is_known.any() else others

    def where(self, rows: Mask, others: Texts) -> Texts:
        """The text of these rows; that of ``others`` on the others."""
        code = np.where(rows, self.code, others.code + len(self.values))
        return Texts([*self.values, *others.values], code)

    def kept(self, rows: Mask, instead: str = "") -> Texts:
        """The text of these rows; ``instead`` on the others."""
        return self.where(rows, Texts.same(instead, len(self)))

    def whole(self, absent: int = 0) -> I64:
        """Digits, with or without a sign, as int64; ``absent`` where it is anything else."""
        values = [int(text) if _WHOLE.fullmatch(text) else absent for text in self.values]
        row_numbers: I64 = np.array(values, np.int64)[self.code]
        return row_numbers

    def numbers(self) -> I64:
        """A number per row, equal for equal texts, in the order of the texts."""
        rank = {text: i for i, text in enumerate(sorted(set(self.values)))}
        row_numbers: I64 = np.array([rank[text] for text in self.values], np.int64)[self.code]
        return row_numbers
