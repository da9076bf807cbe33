"""Columns of text most of whose values are numbers: what the others are, and what would read them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.schema.reading import NOT_A_NUMBER, Reading

NUMBER = r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"
MOSTLY, MOST_ODD = 0.8, 5
OTHERS = (Reading(decimal=","), Reading(thousands=","), Reading(decimal=",", thousands="."), Reading(thousands=" "))


class NumberTally:
    """How many values of a column are numbers, and which are not.

    A column of words costs no more than a look at its first block.

    Parameters
    ----------
    reading : Reading
        By which values are read already.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.n_values = self.n_numbers = 0
        self.odd: Counter[str] = Counter()
        self.first: tuple[int, str] | None = None  # row and value
        self.others = [] if reading.reads_numbers else list(OTHERS)
        self._n_rows, self._is_worth_while = 0, True

    def pass_by(self, n_rows: int, n_numbers: int) -> None:
        """Rows all of whose values are numbers."""
        self._n_rows += n_rows
        self.n_values += n_numbers
        self.n_numbers += n_numbers

    def count(self, texts: pa.Array) -> None:
        """Rows some of whose values are none."""
        first_row, self._n_rows = self._n_rows, self._n_rows + len(texts)
        if not self._is_worth_while:
            return
        column = self.reading.plain(texts).dictionary_encode()
        words = pc.utf8_trim_whitespace(column.dictionary)
        is_number = pc.match_substring_regex(words, NUMBER).to_numpy(zero_copy_only=False)
        index = column.indices.drop_null().to_numpy()
        counts = np.bincount(index, minlength=len(words))
        self.n_values += int(counts.sum())
        self.n_numbers += int(counts[is_number].sum())
        strange = np.flatnonzero(~is_number)
        if strange.size and self.first is None:
            is_odd = pc.is_in(column.indices, value_set=pa.array(strange, column.indices.type)).to_numpy(
                zero_copy_only=False
            )
            row = int(np.argmax(is_odd))
            self.first = first_row + row + 1, texts[row].as_py()
        if len(self.odd) <= MOST_ODD:
            self.odd.update(
                dict(zip(words.take(strange[: MOST_ODD + 1]).to_pylist(), counts[strange].tolist(), strict=False))
            )
        self.others = [other for other in self.others if _reads(other, words)]
        self._is_worth_while = bool(self.others) or self._are_mostly_numbers()

    def _are_mostly_numbers(self) -> bool:
        return self.n_numbers >= MOSTLY * self.n_values

    def hint(self, name: str, is_expected: bool = False) -> str | None:
        """What a user wants to know of the column; None if it is one of words, and nobody expects numbers."""
        if self.first is None or not (self._is_worth_while or is_expected):
            return None
        choices: list[Mapping[str, object]] = []
        if self.others:
            choices = [other.as_said() for other in self.others[:2]]
        elif len(self.odd) <= MOST_ODD and (is_expected or self._are_mostly_numbers()):
            choices = [{"missing": sorted(word.removeprefix(NOT_A_NUMBER) for word in self.odd)}]
        elif not is_expected:
            return None
        row, value = self.first
        said = " or ".join(json.dumps({name: choice}, ensure_ascii=False) for choice in choices)
        option = f" To read them all as numbers, say how they are written in columns: {said}." if said else ""
        return f"{self.n_numbers:,} of {self.n_values:,} values of {name!r} are numbers; row {row:,} holds {value!r}.{option}"


def _reads(reading: Reading, words: pa.Array) -> bool:
    """Whether every word is a number of such a form."""
    plain = reading.plain(words)
    return len(plain) > 0 and bool(pc.all(pc.match_substring_regex(plain, NUMBER)).as_py())
