"""Type inference for text columns: of CSV files, and of the folders of a partitioned table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from learners.errors import columns_setting
from learners.kernels.arrays import Integers
from learners.passes.sources.file_formats import CSV, file_format_by_extension
from learners.passes.sources.source_files import Hint, arrow_type_family
from learners.schema import Schema
from learners.schema.overrides import ALL, DROPPED, ColumnOverride
from learners.schema.reading import DIALECT_FIELDS, FIELDS, ISO, MINUS, Dialect, Expected, Reading, iso8601_time_mask
from learners.schema.schema import Attribute, Value
from learners.schema.times_and_durations import canonical_time_text, time_kind_and_ticks

TRUE, FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
# Of each chain a type reads all that those before it read.
CHAINS: tuple[tuple[pa.DataType, ...], ...] = (
    (pa.int64(), pa.float64()),
    (pa.bool_(),),
    (pa.date32(), pa.timestamp("us"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"),),
    (pa.time32("s"),),
)
# As pyarrow has them: missing values, unless they are in quotes or a model has learned them as values.
NULLS = tuple(pacsv.ConvertOptions().null_values)
# Texts that other programs write or read as missing.
SEEM_MISSING = ("None", "Null", "<NA>", "?", "-", "--", ".", "missing")
AS_IT_IS = Reading()
Types = Mapping[str, pa.DataType | Reading]  # of columns by name, and of all under "*"
NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal")
TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"
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
LIKE_A_DATE = r"^\d{1,4}[-/. ](\d{1,2}|[A-Za-z]{3,9})[-/. ]\d{1,4}|^[A-Za-z]{3,9} \d{1,2}, \d{4}|^\d{1,2}:\d\d"


class TextType:
    """The narrowest type that represents all values of a column, inferred batch by batch.

    Candidates are integers, numbers, booleans, dates, timestamps (with or without a zone) and times of day, else
    text. Digits after a leading zero are text, because 01234 differs from 1234. A column without values has type
    null.
    """

    def __init__(self, reading: Reading = AS_IT_IS) -> None:
        self.reading = reading
        self.numbers = NumberTally(reading)
        self._chain: tuple[pa.DataType, ...] | None = None
        self._place = 0

    @property
    def type(self) -> pa.DataType:
        """The type inferred so far."""
        if self._chain is None:
            return pa.null()
        return self._chain[self._place] if self._place < len(self._chain) else pa.string()

    def see(self, texts: pa.Array, has_nulls: bool = False) -> None:
        """Update the type with more values, text or null; with `has_nulls`, some texts may denote missing values."""
        if self._is_text:
            self.numbers.count(texts)
            return
        if has_nulls:
            texts = pc.if_else(pc.is_in(texts, value_set=pa.array(NULLS)), pa.scalar(None, pa.string()), texts)
        values = pc.utf8_trim_whitespace(self.reading.plain(texts).drop_null())
        if not len(values):
            self.numbers.pass_by(len(texts))
            return
        if self._chain is None:
            first = values[:1]
            self._chain = next(
                (chain for chain in CHAINS if any(is_parsable_as_type(kind, first) for kind in chain)), ()
            )
        if self._chain == CHAINS[0] and self.reading.expected in (None, "time") and has_zero_padded_text(values):
            self._chain = ()
        while self._place < len(self._chain) and not is_parsable_as_type(self._chain[self._place], values):
            self._place += 1
        if self._is_text:
            self.numbers.count(texts)
        else:
            are_numbers, are_dates = self._chain == CHAINS[0], self._chain in CHAINS[2:]
            self.numbers.pass_by(len(texts), are_numbers * len(values), are_dates * len(values))

    @property
    def _is_text(self) -> bool:
        return self._chain is not None and self._place >= len(self._chain)

    def hint(self, name: str) -> Hint | None:
        """Return a hint about a text column that looks numeric, or that a model expects to be numeric: the values that
        are not numbers.
        """
        return self.numbers.hint(name, self.reading.expected) if self._is_text else None


def is_parsable_as_type(kind: pa.DataType, values: pa.Array) -> bool:
    """Return whether all texts parse as a type."""
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(values, pa.array(TRUE + FALSE))).as_py())
    if pa.types.is_time(kind):  # pyarrow reads them from CSV, and has no cast
        return bool(pc.all(pc.match_substring_regex(values, TIME)).as_py())
    try:
        values.cast(kind)
    except pa.ArrowException:
        return False
    return True


def has_zero_padded_text(values: pa.Array) -> bool:
    """Return whether any text begins with 0 and another digit."""
    begun = values.filter(pc.starts_with(values, "0"))
    return len(begun) > 0 and bool(pc.any(pc.match_substring_regex(begun, r"^0\d")).as_py())


def infer_text_type(values: Sequence[str | None], reading: Reading = AS_IT_IS) -> pa.DataType:
    """Infer the narrowest type that represents all texts."""
    text_type = TextType(reading)
    text_type.see(pa.array(values, pa.string()))
    return text_type.type


def common_text_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type for a column with several types in text files; None if all are of one family and may differ."""
    return pa.string() if len({arrow_type_family(kind) for kind in types} - {"null"}) > 1 else None


def declared_text_types(
    schema: Schema | None, overrides: Mapping[str, Any] | None = None
) -> dict[str, pa.DataType | Reading]:
    """Return the declared types and readings of columns in text files.

    So "01234" and "1234" in a CSV file keep their training type.

    `schema`: of a model, or given for training.
    `overrides`: column name to what `ColumnOverride.of` reads.
    """
    types: dict[str, pa.DataType | Reading] = {}
    for attribute in schema.attributes if schema is not None else ():
        # Times are found to be times, as they were in training.
        is_text = (
            attribute.kind == "nominal"
            and _are_text(attribute.values)
            and not time_kind_and_ticks(attribute.arrow_type)
        )
        is_number = attribute.kind == "numeric" and attribute.arrow_type.startswith(NUMBERS)
        is_whole = attribute.kind == "nominal" and set(map(type, attribute.values)) == {int}
        is_time = attribute.kind == "numeric" and attribute.arrow_type.startswith(("date", "time"))
        if is_text or is_number or is_whole or is_time or attribute.reading is not None:
            kind: Expected = "text" if is_text else "number" if is_number else "digits" if is_whole else None
            kind = "time" if is_time else kind
            words = _null_words(attribute.values, attribute.has_missing) if is_text else ()
            types[attribute.name] = replace(attribute.reading or Reading(), expected=kind, words=words)
    if schema is not None and schema.target is not None and schema.class_type in ("string", "int64"):
        is_text = schema.class_type == "string"
        are_times = is_text and all(canonical_time_text(name, "timestamp") == name for name in schema.classes)
        words = _null_words(schema.classes, False) if is_text else ()
        if not are_times:
            reading = schema.class_reading or Reading()
            types[schema.target] = replace(reading, expected="text" if is_text else "digits", words=words)
    if schema is not None and schema.dialect is not None:
        types[ALL] = Reading(dialect=schema.dialect)
    for left_out in schema.left_out if schema is not None else ():
        if left_out.reason == DROPPED:
            types[left_out.name] = Reading(is_dropped=True)
    for name, entry in (overrides or {}).items():
        override = ColumnOverride.of(name, entry)
        if override.drop:
            types[name] = Reading(is_dropped=True)
        elif override.order is not None and _are_text(override.order):
            words = _null_words(override.order, True)
            types[name] = replace(override.reading or Reading(), expected="text", words=words)
        elif override.reading is not None:
            known = types.get(name)
            assert known is None or isinstance(known, Reading)
            types[name] = override.reading if known is None else known.with_options(override.reading)
    return types


def unused_csv_options(overrides: Mapping[str, Any] | None, paths: Sequence[str]) -> list[str]:
    """Return one sentence about CSV options that have no effect because no file is CSV; empty if all have one."""
    if any(file_format_by_extension(path) == CSV for path in paths):
        return []
    options = [
        f"{option!r} of {'all columns' if name == ALL else f'column {name!r}'}"
        for name, entry in (overrides or {}).items()
        for option in (entry if isinstance(entry, Mapping) else ())
        if option in (*FIELDS, *DIALECT_FIELDS) and option != "columns_of"
    ]
    message = f"{', '.join(options)}: no file is CSV, so this has no effect."
    return [message] if options else []


def missing_value_hints(attributes: Iterable[Attribute], paths: Sequence[str]) -> list[str]:
    """Return one sentence for each text column of CSV files whose values seem to stand for missing ones."""
    if not any(file_format_by_extension(path) == CSV for path in paths):
        return []
    found = {one.name: [value for value in SEEM_MISSING if value in one.values] for one in attributes}
    return [
        f"{', '.join(map(repr, values))} in column {name!r}: this counts as a value, not as missing. If it means missing: "
        f"{columns_setting({name: {'missing': values}})}."
        for name, values in found.items()
        if values
    ]


def declared_csv_dialect(types: Types) -> Dialect:
    """Return the declared CSV dialect."""
    of_all = types.get(ALL)
    return (of_all.dialect if isinstance(of_all, Reading) else None) or Dialect()


def declared_type_and_reading(types: Types, name: str) -> tuple[pa.DataType | None, Reading]:
    """Return the declared type of a column, if any, and its reading."""
    known, of_all = types.get(name), types.get(ALL)
    whole = of_all if isinstance(of_all, Reading) else None
    own = known if isinstance(known, Reading) else Reading()
    reading = own.with_options(own.within(whole))
    return pa.string() if own.expected == "text" else None if isinstance(known, Reading) else known, reading


def _null_words(values: Sequence[Value], has_missing: bool) -> tuple[str, ...]:
    """Return the values that CSV would read as missing; the empty text only if none was missing, because CSV writes
    both alike.
    """
    return tuple(str(value) for value in values if value in NULLS and (value or not has_missing))


def _are_text(values: Sequence[Value]) -> bool:
    return any(isinstance(value, str) for value in values)


DATE_FORMATS = ["", ISO, *DAYS, *(f"{day} {time}" for day in DAYS for time in TIMES), *TIMES]


class _Form:
    """Counts of the values that parse in one form, and the values that do not."""

    def __init__(self, reading: Reading, are_dates: bool, n_before: int) -> None:
        self.reading, self.are_dates = reading, are_dates
        self.n_values = self.n_read = n_before
        self.odd: Counter[str] = Counter()
        self.first: tuple[int, str] | None = None  # row and value
        self.changes_texts = False

    def of(self, words: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the words as Arrow would parse them, and a mask of those that parse."""
        plain = pc.utf8_trim_whitespace(self.reading.plain(words))
        is_read = iso8601_time_mask(plain) if self.are_dates else pc.match_substring_regex(plain, NUMBER)
        return plain, pc.fill_null(is_read, True)

    def count(self, first_row: int, texts: pa.Array, column: pa.DictionaryArray, counts: Integers) -> None:
        """Count more values, given as texts and as a dictionary with the count of each word."""
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
        """True if most values parse."""
        return self.n_read >= MOSTLY * self.n_values

    def options(self, *, with_odd: bool) -> dict[str, object]:
        """Return the column options that a user would declare."""
        missing = [*self.reading.missing, *(sorted(self.odd) if with_odd else ())]
        return self.reading.options() | ({"missing": missing} if missing else {})


class NumberTally:
    """Counts of the numeric values of a column, and the values that are not numbers.

    A column of words costs only an inspection of its first block.

    `reading`: the options that already apply.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.n_numbers = self.n_dates = self._n_rows = 0
        self.plain: _Form | None = None  # by what is said already
        self.others: list[_Form] = []

    def pass_by(self, n_rows: int, n_numbers: int = 0, n_dates: int = 0) -> None:
        """Count rows whose values are all numbers, or dates."""
        self._n_rows += n_rows
        self.n_numbers += n_numbers
        self.n_dates += n_dates

    def count(self, texts: pa.Array) -> None:
        """Count rows with values that are not numbers."""
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

    def hint(self, name: str, expected: Expected = None) -> Hint | None:
        """Return a hint about the column; None if it is text and no numbers or times are expected."""
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
        offered = " or ".join(columns_setting({name: choice}) for choice in choices)
        are_marks = all(set(choice) == {"missing"} for choice in choices)
        how = "and the other texts as missing values" if are_marks else "say how they are written"
        option = (
            f" To read {f'numbers as {kind} {how}' if are_marks else f'them all as {kind}, {how}'}: {offered}."
            if offered
            else ""
        )
        found = (
            f"{n_read:,} of {best.n_values:,} values of {name!r} are {kind}; row {row:,} holds {value!r}."
            if n_read
            else f"{name!r} holds texts such as {value!r} (row {row:,}), not {kind}."
        )
        return Hint(
            found + option,
            {name: choices[0]} if choices else {},
            len(choices) > 1,
        )

    def _other_forms(self, words: pa.Array) -> list[_Form]:
        """Return the number or date formats that match some of the non-numeric words."""
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
