"""How each warehouse writes names, texts, numbers and the few functions that we need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from learners.errors import LearnerError

DialectName = Literal["duckdb", "postgres", "sqlite", "bigquery", "snowflake", "spark"]
EXACT = 1 << 53


class UnknownDialect(LearnerError, ValueError):
    """There is no such dialect."""

    def __init__(self, dialect: str) -> None:
        super().__init__(f"There is no dialect {dialect!r}. Choose one of {', '.join(DIALECTS)}.")
        self.dialect = dialect


class UnwritableText(LearnerError, ValueError):
    """A name or value has no literal in SQL."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what!r} holds a zero character, which SQL cannot write. Replace the character and train again."
        )
        self.what = what


@dataclass(frozen=True)
class Dialect:
    """One way to write SQL."""

    name: str
    quote: str  # around names
    # `text`, `whole`, `real`: types.
    text: str
    whole: str
    real: str
    escapes: Mapping[str, str]  # what stands for a character in a text
    name_escapes: Mapping[str, str]  # what stands for a character in a name
    is_nan: str | None  # whether {} is NaN; None where there is none
    seconds: str  # of a moment {} since 1970, as a double
    greatest: str = "GREATEST"  # function of the greatest of several numbers
    distinguishes_case: bool = False  # whether two columns of a table may differ in case alone
    # (bool, bool): whether a common table expression is to be computed by itself: one that is read once, and one that
    # is read more often.
    materializes: tuple[bool, bool] = (False, False)
    parses_exactly: bool = True  # whether a decimal number becomes the nearest double

    def identifier(self, name: str) -> str:
        """A name in quotes."""
        return self.quote + self._escaped(name, self.name_escapes) + self.quote

    def literal(self, value: str | int | bool) -> str:
        """A value of a column or a class."""
        if isinstance(value, bool):
            return str(value).upper()
        return f"'{self._escaped(value, self.escapes)}'" if isinstance(value, str) else str(value)

    def number(self, x: float) -> str:
        """Exactly this double."""
        if math.isinf(x):
            x = math.copysign(1.7976931348623157e308, x)
        if not self.parses_exactly and x != int(x):
            above, below = x.as_integer_ratio()
            divisors = []
            while below > 1:  # powers of two: no division rounds
                divisors.append(min(below, EXACT))
                below //= divisors[-1]
            return "(" + " / ".join(f"{part}.0" for part in (above, *divisors)) + ")"
        return text if "e" in (text := repr(float(x))) else f"{text}e0"

    def largest(self, terms: Sequence[str]) -> str:
        """The greatest of some numbers."""
        return terms[0] if len(terms) == 1 else f"{self.greatest}({', '.join(terms)})"

    def exp(self, term: str) -> str:
        """The exponential, for which PostgreSQL raises an error where it would be zero."""
        return f"EXP({self.largest([term, '-7e2'])})"

    @staticmethod
    def _escaped(text: str, escapes: Mapping[str, str]) -> str:
        if "\0" in text:
            raise UnwritableText(text)
        return "".join(escapes.get(character, character) for character in text)


QUOTE, DOUBLED = {"'": "''"}, {'"': '""'}
BACKSLASHES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}
# Text in ISO 8601: SQLite has no moments. Its own fractions of a second end at milliseconds.
SQLITE_SECONDS = (
    "((CAST(strftime('%s', {0}) AS REAL) * 1e6 + CASE WHEN instr({0}, '.') > 0 "
    "THEN CAST(substr(substr({0}, instr({0}, '.') + 1) || '000000', 1, 6) AS REAL) ELSE 0.0 END) / 1e6)"
)
DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            *("duckdb", '"', "VARCHAR", "BIGINT", "DOUBLE", QUOTE, DOUBLED),
            is_nan="isnan({})",
            seconds="(CAST(epoch_us({}) AS DOUBLE) / 1e6)",
            materializes=(False, True),
        ),
        Dialect(
            *("postgres", '"', "TEXT", "BIGINT", "DOUBLE PRECISION", QUOTE, DOUBLED),
            is_nan="{} = CAST('NaN' AS DOUBLE PRECISION)",
            seconds="CAST(EXTRACT(EPOCH FROM {}) AS DOUBLE PRECISION)",
            materializes=(False, True),
            distinguishes_case=True,
        ),
        Dialect(
            *("sqlite", '"', "TEXT", "INTEGER", "REAL", QUOTE, DOUBLED),
            is_nan=None,
            seconds=SQLITE_SECONDS,
            greatest="MAX",
            materializes=(True, True),
            parses_exactly=False,
        ),
        Dialect(
            *("bigquery", "`", "STRING", "INT64", "FLOAT64", BACKSLASHES, {"\\": "\\\\", "`": "\\`"}),
            is_nan="IS_NAN({})",
            seconds="(CAST(UNIX_MICROS(TIMESTAMP({})) AS FLOAT64) / 1e6)",
        ),
        Dialect(
            *("snowflake", '"', "STRING", "BIGINT", "DOUBLE", BACKSLASHES, DOUBLED),
            is_nan="{} = CAST('NaN' AS DOUBLE)",
            seconds="(CAST(DATE_PART(EPOCH_MICROSECOND, {}) AS DOUBLE) / 1e6)",
            distinguishes_case=True,
        ),
        Dialect(
            *("spark", "`", "STRING", "BIGINT", "DOUBLE", BACKSLASHES, {"`": "``"}),
            is_nan="isnan({})",
            seconds="(CAST(unix_micros(CAST({} AS TIMESTAMP)) AS DOUBLE) / 1e6)",
        ),
    )
}


def dialect_of(name: str) -> Dialect:
    """A dialect by its name. Raises UnknownDialect."""
    if name not in DIALECTS:
        raise UnknownDialect(name)
    return DIALECTS[name]
