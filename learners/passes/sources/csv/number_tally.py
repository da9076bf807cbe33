"""Columns of text most of whose values are numbers or dates: what the others are, and what would read them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.kernels.arrays import Integers
from learners.schema.reading import ISO, MINUS, Expected, Reading, are_moments

NUMBER = r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"
MOSTLY, MOST_ODD, MOST_LOOKED_AT = 0.8, 5, 100
SEPARATORS = ((".", ""), (",", ""), (".", ","), (",", "."), (".", " "), (",", " "), (".", "'"), (".", "_"))
SYMBOL = r"[%‰°$€£¥₹₽₩]"
DAYS = (
    *("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y/%m/%d", "%Y.%m.%d", "%m-%d-%Y", "%d-%m-%Y", "%Y-%m-%d"),
    *("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y"),
    *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%b-%y"),
)
TIMES = ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p")
DATE_FORMATS = ["", ISO, *DAYS, *(f"{day} {time}" for day in DAYS for time in TIMES), *TIMES]
LIKE_A_DATE = r"^\d{1,4}[-/. ](\d{1,2}|[A-Za-z]{3,9})[-/. ]\d{1,4}|^[A-Za-z]{3,9} \d{1,2}, \d{4}|^\d{1,2}:\d\d"


class _Form:
    """How many values can be read in one way, and which cannot."""

    def __init__(self, reading: Reading, are_dates: bool, n_before: int) -> None:
        self.reading, self.are_dates = reading, are_dates
        self.n_values = self.n_read = n_before
        self.odd: Counter[str] = Counter()
        self.first: tuple[int, str] | None = None  # row and value
        self.changes_texts = False

    def of(self, words: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The words as Arrow would read them, and of each whether it does."""
        plain = pc.utf8_trim_whitespace(self.reading.plain(words))
        is_read = are_moments(plain) if self.are_dates else pc.match_substring_regex(plain, NUMBER)
        return plain, pc.fill_null(is_read, True)

    def count(self, first_row: int, texts: pa.Array, column: pa.DictionaryArray, counts: Integers) -> None:
        """More values: as texts, and as a dictionary whose words occur so often."""
        plain, is_read = self.of(column.dictionary)
        self.changes_texts = self.changes_texts or not plain.equals(pc.utf8_trim_whitespace(column.dictionary))
        is_odd = ~is_read.to_numpy(zero_copy_only=False)
        self.n_values += int(counts.sum())
        self.n_read += int(counts[~is_odd].sum())
        strange = np.flatnonzero(is_odd)
        if strange.size and self.first is None:
            rows = pc.is_in(column.indices, value_set=pa.array(strange, column.indices.type))
            row = int(np.argmax(rows.to_numpy(zero_copy_only=False)))
            self.first = first_row + row + 1, texts[row].as_py()
        if len(self.odd) <= MOST_ODD:
            few = strange[: MOST_ODD + 1]
            words = pc.utf8_trim_whitespace(column.dictionary.take(pa.array(few))).to_pylist()
            self.odd.update(dict(zip(words, counts[few].tolist(), strict=True)))

    @property
    def is_most(self) -> bool:
        """Whether most values can be read."""
        return self.n_read >= MOSTLY * self.n_values

    def options(self, *, with_odd: bool) -> dict[str, object]:
        """What a user would say of the column."""
        missing = [*self.reading.missing, *(sorted(self.odd) if with_odd else ())]
        return self.reading.options() | ({"missing": missing} if missing else {})


class NumberTally:
    """How many values of a column are numbers, and which are not.

    A column of words costs no more than a look at its first block.

    `reading`: by which values are read already.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.n_numbers = self.n_dates = self._n_rows = 0
        self.plain: _Form | None = None  # by what is said already
        self.others: list[_Form] = []

    def pass_by(self, n_rows: int, n_numbers: int = 0, n_dates: int = 0) -> None:
        """Rows all of whose values are numbers, or dates."""
        self._n_rows += n_rows
        self.n_numbers += n_numbers
        self.n_dates += n_dates

    def count(self, texts: pa.Array) -> None:
        """Rows some of whose values are none."""
        first_row, self._n_rows = self._n_rows, self._n_rows + len(texts)
        is_first = self.plain is None
        if not (is_first or self._is_worth_while()):
            return
        column = self.reading.without_marks(texts).dictionary_encode()
        counts = np.bincount(column.indices.drop_null().to_numpy(), minlength=len(column.dictionary))
        if self.plain is None:
            self.plain = _Form(self.reading, False, self.n_numbers)
            self.others = self._other_forms(column.dictionary)
        for form in (self.plain, *self.others):
            form.count(first_row, texts, column, counts)
        self.others = [form for form in self.others if form.is_most]

    def _is_worth_while(self) -> bool:
        return bool(self.others) or (self.plain is not None and self.plain.is_most)

    def hint(self, name: str, expected: Expected = None) -> str | None:
        """What a user wants to know of the column; None if it is one of words, and nobody expects numbers or times."""
        is_needed = expected in ("number", "time")
        if self.plain is None or self.plain.first is None or not (self._is_worth_while() or is_needed):
            return None
        forms = [form for form in self.others if not is_needed or form.are_dates == (expected == "time")]
        whole = [form for form in forms if form.n_read == form.n_values and form.changes_texts]
        marks = [form.options(with_odd=False).items() for form in whole]
        whole = [form for form, own in zip(whole, marks, strict=True) if not any(other < own for other in marks)][:2]
        numbers = [] if expected == "time" else [self.plain]
        partly = [form for form in (*numbers, *forms) if form.is_most and 0 < len(form.odd) <= MOST_ODD][:1]
        choices = [form.options(with_odd=False) for form in whole] or [form.options(with_odd=True) for form in partly]
        if not choices and expected == "number" and len(self.plain.odd) <= MOST_ODD:
            choices = [self.plain.options(with_odd=True)]
        if not choices and not is_needed:
            return None
        best = next((form for form in [*whole, *partly][:1] if form.are_dates), self.plain)
        kind = "dates or times" if best.are_dates or expected == "time" else "numbers"
        row, value = best.first or self.plain.first
        n_read = 0 if best.first is None or (expected == "time" and best is self.plain) else best.n_read
        offered = " or ".join(json.dumps({name: choice}, ensure_ascii=False) for choice in choices)
        option = f" To read them all as {kind}, say how they are written in columns: {offered}." if offered else ""
        return f"{n_read:,} of {best.n_values:,} values of {name!r} are {kind}; row {row:,} holds {value!r}.{option}"

    def _other_forms(self, words: pa.Array) -> list[_Form]:
        """Forms of numbers, or of dates, that some words have which are no numbers."""
        words = pc.utf8_trim_whitespace(words)
        odd = words.filter(pc.invert(pc.match_substring_regex(words, NUMBER)))[:MOST_LOOKED_AT]
        texts = odd.to_pylist()
        has_options = bool(self.reading.options())
        forms = [] if has_options else [_Form(form, False, self.n_numbers) for form in _of_numbers(self.reading, texts)]
        if any(re.search(LIKE_A_DATE, text) for text in texts):
            formats = [self.reading.date_format] if has_options else DATE_FORMATS
            forms += [_Form(replace(self.reading, date_format=each), True, self.n_dates) for each in formats]
        return [form for form in forms if pc.any(form.of(odd)[1]).as_py()]


def _of_numbers(reading: Reading, odd: Sequence[str]) -> Iterator[Reading]:
    if not any(re.search(r"\d", text) for text in odd):
        return
    units = Counter(mark for text in odd for mark in re.findall(SYMBOL, text))
    unit = units.most_common(1)[0][0] if units else ""
    has_brackets = any(re.fullmatch(r"\(.*\d.*\)", text) for text in odd)
    negative = "()" if has_brackets else MINUS if any(MINUS in text for text in odd) else ""
    for decimal, thousands in SEPARATORS:
        form = replace(reading, unit=unit, negative=negative, decimal=decimal, thousands=thousands)
        if form.options():
            yield form
