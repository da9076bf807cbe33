"""How text files are written: the dialect of CSV, and the values of each column."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import InvalidParameter

Expected = Literal["text", "number", "digits"] | None
FIELDS = ("missing", "decimal", "thousands")
NOT_A_NUMBER = "not a number: "
NO_FILES = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape")  # codecs of names and of programs
NOT_A_MARK = "\r\n\0\ufeff"


@dataclass(frozen=True)
class Dialect:
    """What a user says of files, most of it of CSV; the fields are those of `columns["*"]`.

    Parameters
    ----------
    delimiter : str
        Between values; empty: it is found in the first rows.
    quote : str
        Around values; empty: quotes are characters as others.
    escape : str
        Before a quote within quotes, as Spark and MySQL write it; empty: a quote is doubled.
    encoding : str
        Name of the encoding; empty: UTF-8, or what a byte order mark says.
    header : int
        Line of the file that holds the names; 0: there is none, and columns are called column_1, column_2, …
    comment : str
        Lines that begin with it are left out; empty: there are none.
    names : "" or "unique"
        "unique": repeated names get a number, and empty ones that of their column.
    columns_of : "", "union", "intersection" or "first"
        Of files of any format whose columns differ: those of any file count, those of all, or those of the first.
    """

    delimiter: str = ""
    quote: str = '"'
    escape: str = ""
    encoding: str = ""
    header: int = 1
    comment: str = ""
    names: Literal["", "unique"] = ""
    columns_of: Literal["", "union", "intersection", "first"] = ""

    @classmethod
    def of(cls, entry: Mapping[str, object]) -> Dialect | None:
        """Read one from a mapping; None if that says nothing.

        Raises
        ------
        InvalidParameter
            Naming the field.
        """
        if not entry:
            return None
        allowed = {
            "delimiter": "one character, such as ';'",
            "quote": "one character, or '' where nothing is quoted",
            "escape": "one character, such as '\\\\', or '' where quotes are doubled",
            "encoding": "the name of an encoding, such as 'utf-8', 'utf-16', 'latin-1' or 'windows-1252'",
            "header": "the number of the line that holds the names, or 0 where there is none",
            "comment": "what lines to be left out begin with, such as '#'",
            "columns_of": "'union', 'intersection' or 'first'",
            "names": "'unique', which tells repeated and empty names apart",
        }
        for name, value in entry.items():
            if not _is_allowed(name, value):
                raise InvalidParameter(f"columns['*'].{name}", value, allowed[name])
        found = cls(**cast("dict[str, Any]", entry))  # each was looked at
        marks = [found.delimiter, found.quote, found.escape]
        if any(mark and marks.count(mark) > 1 for mark in marks):
            raise InvalidParameter("columns['*']", dict(entry), "delimiter, quote and escape differ from each other")
        return found

    def said(self) -> dict[str, object]:
        """The fields that say something, as `of` reads them."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }


DIALECT_FIELDS = tuple(field.name for field in fields(Dialect))


def _is_allowed(name: str, value: object) -> bool:
    if name == "header":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000
    if not isinstance(value, str):
        return False
    if name == "encoding":
        return _is_encoding(value)
    if name == "names":
        return value in ("", "unique")
    if name == "columns_of":
        return value in ("", "union", "intersection", "first")
    if name == "comment":
        return not set(value) & set(NOT_A_MARK)
    if not value:
        return name != "delimiter"  # which is found where it is left out
    return len(value) == 1 and value.isascii() and value not in NOT_A_MARK


def _is_encoding(name: str) -> bool:
    try:
        found = codecs.lookup(name)
        return found._is_text_encoding and found.name not in NO_FILES
    except (LookupError, ValueError):
        return False


@dataclass(frozen=True)
class Reading:
    """Marks of missing values, and the marks within numbers; of text files only.

    Parameters
    ----------
    missing : tuple of str
        Texts that stand for a missing value, beside those that always do (empty, NA, NULL and their like).
    decimal : str
        Between whole and fraction: "." or ",".
    thousands : str
        Between groups of three digits; empty for none.
    expected : "text", "number", "digits" or None
        What the model that reads the rows has learned: numbers that it cannot do without, or whole ones as nominal values or
        classes. No part of what a user says, as are the following.
    words : tuple of str
        Texts such as "NA" that the model has learned as values.
    nulls : tuple of str
        Texts that stand for a missing value, exactly as they are.
    dialect : Dialect or None
        How the files are written; said of all columns together.
    is_dropped : bool
        Whether the column is left out, so that files may lack it.
    """

    missing: tuple[str, ...] = ()
    decimal: str = "."
    thousands: str = ""
    expected: Expected = field(default=None, compare=False)
    words: tuple[str, ...] = field(default=(), compare=False)
    nulls: tuple[str, ...] = ()
    dialect: Dialect | None = field(default=None, compare=False)
    is_dropped: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, column: str, entry: Mapping[str, object]) -> Reading | None:
        """Read one from a mapping; None if that says nothing.

        Raises
        ------
        InvalidParameter
            Naming the column and the field.
        """
        if not entry:
            return None
        where = f"columns[{column!r}]"
        missing, decimal, thousands = entry.get("missing", ()), entry.get("decimal", "."), entry.get("thousands", "")
        marks = (missing,) if isinstance(missing, str) else missing
        if not isinstance(marks, list | tuple) or not all(isinstance(mark, str) for mark in marks):
            raise InvalidParameter(
                f"{where}.missing", missing, 'give texts that stand for a missing value, such as ["?"]'
            )
        if decimal not in (".", ","):
            raise InvalidParameter(f"{where}.decimal", decimal, "use '.' or ','")
        if thousands not in ("", ".", ",", " ", "'", "_") or thousands == decimal:
            raise InvalidParameter(f"{where}.thousands", thousands, "use '.', ',', ' ', \"'\" or '_', unlike decimal")
        return cls(tuple(mark.strip() for mark in marks), str(decimal), str(thousands))

    def as_said(self) -> dict[str, str]:
        """The separators as `of` reads them."""
        own = {"decimal": self.decimal, "thousands": self.thousands}
        return {name: mark for name, mark in own.items() if mark not in ("", ".") or (name == "thousands" and mark)}

    def within(self, other: Reading | None) -> Reading:
        """What holds of a column where `other` is said of all: marks of both, separators of `other` where it has none."""
        if other is None:
            return self
        own = self.decimal != "." or bool(self.thousands)
        separators = self if own else other
        return Reading((*self.missing, *other.missing), separators.decimal, separators.thousands)

    def said(self, of_user: Reading) -> Reading:
        """What a user says, beside what is known of the model here."""
        return replace(of_user, expected=self.expected, words=self.words, dialect=of_user.dialect or self.dialect)

    @property
    def reads_numbers(self) -> bool:
        """Whether numbers are written otherwise than Arrow reads them."""
        return self.decimal != "." or bool(self.thousands)

    def without_marks(self, texts: pa.Array) -> pa.Array:
        """The texts, null in place of those that stand for a missing value."""
        for marks, seen in ((self.missing, pc.utf8_trim_whitespace), (self.nulls, None)):
            if marks:
                is_missing = pc.is_in(texts if seen is None else seen(texts), value_set=pa.array(marks, pa.string()))
                texts = pc.if_else(is_missing, pa.scalar(None, pa.string()), texts)
        return texts

    def plain(self, texts: pa.Array) -> pa.Array:
        """The texts as Arrow reads them: null for missing values, numbers with a point and without separators.

        A number that is not written so is none: it is marked, so that nobody reads "1.5" as one and a half where the point
        separates thousands.
        """
        texts = self.without_marks(texts)
        if not self.reads_numbers:
            return texts
        trimmed = pc.utf8_trim_whitespace(texts)
        point, group = re.escape(self.decimal), re.escape(self.thousands)
        grouped = rf"\d{{1,3}}(?:{group}\d{{3}})+" if self.thousands else r"\d+"
        is_number = pc.match_substring_regex(trimmed, rf"^[-+]?(?:{grouped}|\d+)?(?:{point}\d*)?(?:[eE][-+]?\d+)?$")
        has_digits = pc.match_substring_regex(trimmed, r"^[-+\d.,eE_' ]*\d[-+\d.,eE_' ]*$")
        numbers = pc.replace_substring(trimmed, self.thousands, "") if self.thousands else trimmed
        numbers = pc.replace_substring(numbers, self.decimal, ".") if self.decimal != "." else numbers
        marked = pc.binary_join_element_wise(pa.scalar(NOT_A_NUMBER), texts, "")
        is_date = pc.match_substring_regex(trimmed, r"^\d{4}-\d\d")
        strange = pc.if_else(pc.and_(has_digits, pc.invert(is_date)), marked, texts)
        return pc.if_else(pc.and_(is_number, has_digits), numbers, strange)
