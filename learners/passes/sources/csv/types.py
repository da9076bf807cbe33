"""The types of columns that are only text: of CSV files, and of the folders of a partitioned table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from learners.passes.sources.csv.number_tally import NumberTally
from learners.passes.sources.file_sets import type_family
from learners.passes.sources.formats import format_of
from learners.schema import Schema
from learners.schema.nominal_forms import canonical, what_time
from learners.schema.overrides import ALL, DROPPED, ColumnOverride
from learners.schema.reading import DIALECT_FIELDS, FIELDS, Dialect, Expected, Reading
from learners.schema.schema import Value

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
AS_IT_IS = Reading()
Types = Mapping[str, pa.DataType | Reading]  # of columns by name, and of all under "*"
NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal")
TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"


class TextType:
    """The narrowest type that reads all values of a column, found batch by batch.

    Whole numbers, numbers, true and false, dates, moments (with or without a zone), times of day; else text. Digits behind a
    leading zero are text, as 01234 is not 1234. A column without
    values is of type null.
    """

    def __init__(self, reading: Reading = AS_IT_IS) -> None:
        self.reading = reading
        self.numbers = NumberTally(reading)
        self._chain: tuple[pa.DataType, ...] | None = None
        self._place = 0

    @property
    def type(self) -> pa.DataType:
        """The type so far."""
        if self._chain is None:
            return pa.null()
        return self._chain[self._place] if self._place < len(self._chain) else pa.string()

    def see(self, texts: pa.Array, has_nulls: bool = False) -> None:
        """Look at more values, which are text or null; some texts may stand for a missing value, too."""
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
            self._chain = next((chain for chain in CHAINS if any(reads(kind, first) for kind in chain)), ())
        if self._chain == CHAINS[0] and self.reading.expected in (None, "time") and are_padded(values):
            self._chain = ()
        while self._place < len(self._chain) and not reads(self._chain[self._place], values):
            self._place += 1
        if self._is_text:
            self.numbers.count(texts)
        else:
            are_numbers, are_dates = self._chain == CHAINS[0], self._chain in CHAINS[2:]
            self.numbers.pass_by(len(texts), are_numbers * len(values), are_dates * len(values))

    @property
    def _is_text(self) -> bool:
        return self._chain is not None and self._place >= len(self._chain)

    def hint(self, name: str) -> str | None:
        """Of a column of text that looks like numbers, or that a model expects to hold some: which values are none."""
        return self.numbers.hint(name, self.reading.expected) if self._is_text else None


def reads(kind: pa.DataType, values: pa.Array) -> bool:
    """Whether every one of some texts is a value of a type."""
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(values, pa.array(TRUE + FALSE))).as_py())
    if pa.types.is_time(kind):  # pyarrow reads them from CSV, and has no cast
        return bool(pc.all(pc.match_substring_regex(values, TIME)).as_py())
    try:
        values.cast(kind)
    except pa.ArrowException:
        return False
    return True


def are_padded(values: pa.Array) -> bool:
    """Whether one of some texts begins with 0 and another digit."""
    begun = values.filter(pc.starts_with(values, "0"))
    return len(begun) > 0 and bool(pc.any(pc.match_substring_regex(begun, r"^0\d")).as_py())


def type_of(values: Sequence[str | None], reading: Reading = AS_IT_IS) -> pa.DataType:
    """The narrowest type that reads all of some texts."""
    found = TextType(reading)
    found.see(pa.array(values, pa.string()))
    return found.type


def common_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type that a column of several files of text must have; None if each may keep its own, as they are of one family."""
    return pa.string() if len({type_family(kind) for kind in types} - {"null"}) > 1 else None


def declared_types(
    schema: Schema | None, overrides: Mapping[str, Any] | None = None
) -> dict[str, pa.DataType | Reading]:
    """What is known of columns of text files: those that are text whatever they look like, and how others are written.

    So "01234" and "1234" of a CSV file stay what they were in training.

    `schema`: of a model, or given for training.
    `overrides`: column name to what `ColumnOverride.of` reads.
    """
    found: dict[str, pa.DataType | Reading] = {}
    for attribute in schema.attributes if schema is not None else ():
        # Times are found to be times, as they were in training.
        is_text = attribute.kind == "nominal" and _are_text(attribute.values) and not what_time(attribute.arrow_type)
        is_number = attribute.kind == "numeric" and attribute.arrow_type.startswith(NUMBERS)
        is_whole = attribute.kind == "nominal" and set(map(type, attribute.values)) == {int}
        is_time = attribute.kind == "numeric" and attribute.arrow_type.startswith(("date", "time"))
        if is_text or is_number or is_whole or is_time or attribute.reading is not None:
            kind: Expected = "text" if is_text else "number" if is_number else "digits" if is_whole else None
            kind = "time" if is_time else kind
            words = _null_words(attribute.values, attribute.has_missing) if is_text else ()
            found[attribute.name] = replace(attribute.reading or Reading(), expected=kind, words=words)
    if schema is not None and schema.target is not None and schema.class_type in ("string", "int64"):
        is_text = schema.class_type == "string"
        are_times = is_text and all(canonical(name, "timestamp") == name for name in schema.classes)
        words = _null_words(schema.classes, False) if is_text else ()
        if not are_times:
            found[schema.target] = Reading(expected="text" if is_text else "digits", words=words)
    if schema is not None and schema.dialect is not None:
        found[ALL] = Reading(dialect=schema.dialect)
    for left_out in schema.left_out if schema is not None else ():
        if left_out.reason == DROPPED:
            found[left_out.name] = Reading(is_dropped=True)
    for name, entry in (overrides or {}).items():
        override = ColumnOverride.of(name, entry)
        if override.drop:
            found[name] = Reading(is_dropped=True)
        elif override.order is not None and _are_text(override.order):
            words = _null_words(override.order, True)
            found[name] = replace(override.reading or Reading(), expected="text", words=words)
        elif override.reading is not None:
            known = found.get(name)
            assert known is None or isinstance(known, Reading)
            found[name] = override.reading if known is None else known.with_options(override.reading)
    return found


def idle_options(overrides: Mapping[str, Any] | None, paths: Sequence[str]) -> list[str]:
    """What is said of how CSV is written where no file is CSV, in one sentence; nothing if all that is said matters."""
    if any(format_of(path) == "CSV" for path in paths):
        return []
    options = [
        f"{option!r} of {'all columns' if name == ALL else f'column {name!r}'}"
        for name, entry in (overrides or {}).items()
        for option in (entry if isinstance(entry, Mapping) else ())
        if option in (*FIELDS, *DIALECT_FIELDS) and option != "columns_of"
    ]
    message = f"{', '.join(options)}: no file is CSV, so this does nothing. Other formats, and frames, hold their values as they are."
    return [message] if options else []


def dialect_of(types: Types) -> Dialect:
    """How the files are written, as far as it is told."""
    of_all = types.get(ALL)
    return (of_all.dialect if isinstance(of_all, Reading) else None) or Dialect()


def reading_of(types: Types, name: str) -> tuple[pa.DataType | None, Reading]:
    """The type of a column, if it is told, and how its values are written."""
    known, of_all = types.get(name), types.get(ALL)
    whole = of_all if isinstance(of_all, Reading) else None
    own = known if isinstance(known, Reading) else Reading()
    reading = own.with_options(own.within(whole))
    return pa.string() if own.expected == "text" else None if isinstance(known, Reading) else known, reading


def _null_words(values: Sequence[Value], has_missing: bool) -> tuple[str, ...]:
    """The values that would be missing in CSV; an empty text only if nothing was missing, as CSV writes both alike."""
    return tuple(str(value) for value in values if value in NULLS and (value or not has_missing))


def _are_text(values: Sequence[Value]) -> bool:
    return any(isinstance(value, str) for value in values)
