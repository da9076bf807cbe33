"""Format of text files: the CSV dialect, and the spelling of each column's values."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import InvalidParameter

Expected = Literal["text", "number", "digits", "time"] | None
FIELDS = ("missing", "decimal", "thousands", "unit", "negative", "date_format")
LATER_FIELDS = FIELDS[3:]  # what was stored before does not have them
NOT_A_NUMBER = "not a number: "
NO_FILES = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape")  # codecs of names and of programs
NOT_A_MARK = "\r\n\0\ufeff"
MINUS = "\u2212"  # as word processors and R write it
SPACES = "[\u00a0\u2009\u202f]"
ISO = "iso"
OF_DATES, OF_TIMES = "YymbBd", "HIMSp"
CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?"
ISO_TEXT = rf"^\d{{4}}-\d\d-\d\d([T ]{CLOCK}(Z|[+-]\d\d:?\d\d)?)?$"


@dataclass(frozen=True)
class Dialect:
    """User settings of text files, mostly CSV; the fields are those of `columns["*"]`."""

    delimiter: str = ""  # between values; empty: it is found in the first rows
    quote: str = '"'  # around values; empty: quotes are characters as others
    escape: str = ""  # before a quote within quotes, as Spark and MySQL write it; empty: a quote is doubled
    encoding: str = ""  # name of the encoding; empty: UTF-8, or what a byte order mark says
    # Line of the file that holds the names; 0: there is none, and columns are called column_1, column_2, …
    header: int = 1
    comment: str = ""  # lines that begin with it are left out; empty: there are none
    # "unique": repeated names get a number, and empty ones that of their column.
    names: Literal["", "unique"] = ""
    # Of files of any format whose columns differ: those of any file count, those of all, or those of the first.
    columns_of: Literal["", "union", "intersection", "first"] = ""

    @classmethod
    def of(cls, entry: Mapping[str, object]) -> Dialect | None:
        """Create a dialect from a mapping; None if it is empty. Raises InvalidParameter naming the field."""
        if not entry:
            return None
        for name, value in entry.items():
            is_allowed, wish = OF_DIALECT[name]
            if not isinstance(value, int if name == "header" else str) or not is_allowed(value):
                raise InvalidParameter(f"columns['*'].{name}", value, wish)
        dialect = cls(**cast("dict[str, Any]", entry))  # each was looked at
        marks = [dialect.delimiter, dialect.quote, dialect.escape]
        if any(mark and marks.count(mark) > 1 for mark in marks):
            raise InvalidParameter("columns['*']", dict(entry), because="delimiter, quote and escape must differ")
        return dialect

    def options(self) -> dict[str, object]:
        """Return the fields that differ from their defaults, as `of` accepts them."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }


DIALECT_FIELDS = tuple(field.name for field in fields(Dialect))


def _is_encoding(name: str) -> bool:
    try:
        codec = codecs.lookup(name)
        return codec._is_text_encoding and codec.name not in NO_FILES
    except (LookupError, ValueError):
        return False


def _is_mark(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text not in NOT_A_MARK


# Which values each field may have, and how they are asked for; a delimiter is left out where it is to be found.
OF_DIALECT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "delimiter": (_is_mark, "one character, such as ';'"),
    "quote": (lambda text: not text or _is_mark(text), "one character, or '' if values are not quoted"),
    "escape": (
        lambda text: not text or _is_mark(text),
        "one character, such as '\\\\', or '' if quotes are doubled",
    ),
    "encoding": (_is_encoding, "the name of an encoding, such as 'utf-8', 'utf-16', 'latin-1' or 'windows-1252'"),
    "header": (
        lambda line: line is not True and line is not False and 0 <= line <= 1_000_000,
        "the number of the line that holds the names, or 0 if there is none",
    ),
    "comment": (lambda text: not set(text) & set(NOT_A_MARK), "the text that begins a comment line, such as '#'"),
    "columns_of": (("", "union", "intersection", "first").__contains__, "'union', 'intersection' or 'first'"),
    "names": (("", "unique").__contains__, "'unique', which numbers repeated and empty names"),
}


@dataclass(frozen=True)
class Reading:
    """Missing-value marks, number format and date format of a text column."""

    # Texts that stand for a missing value, beside those that always do (empty, NA, NULL and their like).
    missing: tuple[str, ...] = ()
    decimal: str = "."  # between whole and fraction: "." or ","
    thousands: str = ""  # between groups of three digits; empty for none
    unit: str = ""  # before or after numbers, such as "%" or "$"; it is cut off
    negative: str = ""  # beside "-": "()" around negative numbers, or U+2212 before them
    # How dates and times of day are written, as `datetime.strptime` has it; "iso": with and without a zone, which is
    # UTC then.
    date_format: str = ""
    # "text", "number", "digits", "time" or None: what the model that reads the rows has learned: numbers or times that
    # it cannot do without, or whole numbers as nominal values or classes. No part of what a user says, as are the
    # following.
    expected: Expected = field(default=None, compare=False)
    words: tuple[str, ...] = field(default=(), compare=False)  # texts such as "NA" that the model has learned as values
    nulls: tuple[str, ...] = ()  # texts that stand for a missing value, exactly as they are
    # How the files are written; said of all columns together.
    dialect: Dialect | None = field(default=None, compare=False)
    is_dropped: bool = field(default=False, compare=False)  # whether the column is left out, so that files may lack it

    @classmethod
    def of(cls, column: str, entry: Mapping[str, object]) -> Reading | None:
        """Create a reading from a mapping; None if it is empty. Raises InvalidParameter naming the column and the
        field.
        """
        if not entry:
            return None
        where = f"columns[{column!r}]"
        missing, decimal, thousands = entry.get("missing", ()), entry.get("decimal", "."), entry.get("thousands", "")
        marks = (missing,) if isinstance(missing, str) else missing
        if not isinstance(marks, list | tuple) or not all(isinstance(mark, str) for mark in marks):
            raise InvalidParameter(f"{where}.missing", missing, 'texts that stand for a missing value, such as ["?"]')
        if decimal not in (".", ","):
            raise InvalidParameter(f"{where}.decimal", decimal, "'.' or ','")
        if thousands not in ("", ".", ",", " ", "'", "_") or thousands == decimal:
            raise InvalidParameter(f"{where}.thousands", thousands, "'.', ',', ' ', \"'\" or '_', unlike decimal")
        unit, negative, date_format = (entry.get(name, "") for name in ("unit", "negative", "date_format"))
        if not isinstance(unit, str) or (unit and re.search(r"[\d\s.,+()'_-]", unit)):
            raise InvalidParameter(f"{where}.unit", unit, 'the text before or after numbers, such as "%" or "$"')
        if negative not in ("", "()", MINUS):
            raise InvalidParameter(f"{where}.negative", negative, f"'()' or {MINUS!r} (U+2212)")
        if not isinstance(date_format, str) or not _is_date_format(date_format):
            raise InvalidParameter(
                f"{where}.date_format",
                date_format,
                "a format of dates or times of day made of %Y or %y, %m, %b or %B, %d, %H or %I, %M, %S, %p, such as '%d.%m.%Y %H:%M'; or 'iso'",
            )
        marks = tuple(mark.strip() for mark in marks)
        return cls(marks, str(decimal), str(thousands), unit, str(negative), date_format)

    def options(self) -> dict[str, str]:
        """Return the options that `of` accepts, except the marks of missing values."""
        return {name: getattr(self, name) for name in FIELDS[1:] if getattr(self, name) != getattr(Reading, name)}

    def within(self, other: Reading | None) -> Reading:
        """Combine with a reading for all columns: marks of both, and the separators of `other` if this one has none."""
        if other is None:
            return self
        numbers = self if self.reads_numbers else other
        return replace(
            numbers,
            missing=(*self.missing, *other.missing),
            date_format=self.date_format or other.date_format,
            expected=None,
            words=(),
            nulls=(),
            dialect=None,
            is_dropped=False,
        )

    def with_options(self, of_user: Reading) -> Reading:
        """Combine the user's settings with the model's expectations recorded here."""
        return replace(of_user, expected=self.expected, words=self.words, dialect=of_user.dialect or self.dialect)

    @property
    def reads_numbers(self) -> bool:
        """True if numbers are written differently from Arrow's format."""
        return self.decimal != "." or bool(self.thousands or self.unit or self.negative)

    def without_marks(self, texts: pa.Array) -> pa.Array:
        """Replace texts that mean missing by null."""
        for marks, seen in ((self.missing, pc.utf8_trim_whitespace), (self.nulls, None)):
            if marks:
                is_missing = pc.is_in(texts if seen is None else seen(texts), value_set=pa.array(marks, pa.string()))
                texts = pc.if_else(is_missing, pa.scalar(None, pa.string()), texts)
        return texts

    def plain(self, texts: pa.Array) -> pa.Array:
        """Convert texts to Arrow's format: null for missing values, ISO 8601 dates, numbers with a decimal point and no
        separators.

        A number in another format is marked as invalid, so that "1.5" is not read as one and a half if the point
        separates thousands.
        """
        texts = self.without_marks(texts)
        if self.date_format:
            texts = _dates(texts, self.date_format)
        return self._numbers(texts) if self.reads_numbers else texts

    def _numbers(self, texts: pa.Array) -> pa.Array:
        bare = self._bare(texts)
        point, group = re.escape(self.decimal), re.escape(self.thousands)
        grouped = rf"\d{{1,3}}(?:{group}\d{{3}})+" if self.thousands else r"\d+"
        is_number = pc.match_substring_regex(bare, rf"^[-+]?(?:{grouped}|\d+)?(?:{point}\d*)?(?:[eE][-+]?\d+)?$")
        has_digits = pc.match_substring_regex(bare, r"^[-+\d.,eE_' ]*\d[-+\d.,eE_' ]*$")
        numbers = pc.replace_substring(bare, self.thousands, "") if self.thousands else bare
        numbers = pc.replace_substring(numbers, self.decimal, ".") if self.decimal != "." else numbers
        marked = pc.binary_join_element_wise(pa.scalar(NOT_A_NUMBER), texts, "")
        is_date = pc.match_substring_regex(bare, r"^\d{4}-\d\d")
        strange = pc.if_else(pc.and_(has_digits, pc.invert(is_date)), marked, texts)
        return pc.if_else(pc.and_(is_number, has_digits), numbers, strange)

    def _bare(self, texts: pa.Array) -> pa.Array:
        """Strip units and normalize the minus sign, spaces and apostrophes to ASCII."""
        bare = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, SPACES, " "))
        if self.thousands == "'":
            bare = pc.replace_substring(bare, "\u2019", "'")
        if self.negative == MINUS:
            bare = pc.replace_substring(bare, MINUS, "-")
        elif self.negative:
            bare = pc.replace_substring_regex(bare, r"^\((.*)\)$", r"-\1")
        if self.unit:
            unit = re.escape(self.unit)
            bare = pc.replace_substring_regex(bare, rf"^([-+]?) *{unit} *", r"\1")
            bare = pc.replace_substring_regex(bare, rf" *{unit}$", "")
        return bare


def _is_date_format(text: str) -> bool:
    """Return whether a format describes a date, a time of day, or both, completely and without repetition."""
    if text in ("", ISO):
        return True
    codes = re.findall("%(.)", text)
    if len(set(codes)) < len(codes) or not set(codes) <= set(OF_DATES + OF_TIMES):
        return False
    n_date = [sum(each in codes for each in kind) for kind in ("Yy", "mbB", "d")]
    hour = ("H" in codes and "p" not in codes) or ("I" in codes and "p" in codes and "H" not in codes)
    is_clock = not set(codes) & set(OF_TIMES) or (hour and "M" in codes)
    return is_clock and (n_date == [1, 1, 1] or (n_date == [0, 0, 0] and hour))


def _dates(texts: pa.Array, date_format: str) -> pa.Array:
    """Convert dates and times of day to ISO 8601; other texts are unchanged."""
    trimmed = pc.utf8_trim_whitespace(texts)
    if date_format == ISO:
        has_zone = pc.match_substring_regex(trimmed, r":.*(Z|[+-]\d\d:?\d\d)$")
        is_moment = pc.and_(iso8601_time_mask(trimmed), pc.invert(has_zone))
        midnight = pc.if_else(pc.equal(pc.utf8_length(trimmed), 10), "T00:00:00Z", "Z")
        return pc.if_else(is_moment, pc.binary_join_element_wise(trimmed, midnight, ""), texts)
    times = pc.strptime(trimmed, format=date_format, unit="s", error_is_null=True)
    # The C library takes February 30 for March 1, and 24 for the year 24.
    again = pc.strftime(times, format=date_format)
    is_sound = pc.and_(pc.equal(_unpadded(again), _unpadded(trimmed)), pc.greater_equal(pc.year(times), 1000))
    form = "%H:%M:%S" if not set(OF_DATES) & set(re.findall("%(.)", date_format)) else "%Y-%m-%d"
    form += "T%H:%M:%S" if form != "%H:%M:%S" and "%M" in date_format else ""
    return pc.if_else(pc.fill_null(is_sound, False), pc.strftime(times, format=form), texts)


def _unpadded(texts: pa.Array) -> pa.Array:
    return pc.utf8_lower(pc.replace_substring_regex(texts, r"\b0(\d)", r"\1"))


def iso8601_time_mask(texts: pa.Array) -> pa.Array:
    """Return a mask of the texts that are ISO 8601 dates, timestamps or times of day."""
    day = pc.utf8_slice_codeunits(texts, 0, 10)
    days = pc.strptime(day, format="%Y-%m-%d", unit="s", error_is_null=True)
    is_day = pc.fill_null(pc.equal(pc.strftime(days, format="%Y-%m-%d"), day), False)
    is_clock = pc.match_substring_regex(texts, f"^{CLOCK}$")
    return pc.or_(is_clock, pc.and_(is_day, pc.match_substring_regex(texts, ISO_TEXT)))
