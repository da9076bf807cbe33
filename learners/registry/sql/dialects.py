"""SQL dialects, and queries built as a chain of steps."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from learners.errors import LearnerError

DialectName = Literal["duckdb", "postgres", "sqlite", "bigquery", "snowflake", "spark"]
EXACT = 1 << 53


class UnknownDialect(LearnerError, ValueError):
    """Raised for an unknown SQL dialect."""

    def __init__(self, dialect: str) -> None:
        super().__init__(f"Unknown dialect {dialect!r}. Choose one of {', '.join(DIALECTS)}.")
        self.dialect = dialect


class UnwritableText(LearnerError, ValueError):
    """Raised for a name or value that has no SQL literal."""

    def __init__(self, what: str, because: str = "contains a zero character, which SQL cannot express") -> None:
        super().__init__(f"{what!r} {because}. Replace it and train again.")
        self.what = what


@dataclass(frozen=True)
class Dialect:
    """Syntax of one SQL dialect."""

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
    floor: str = "FLOOR({})"  # of a double, as a number
    parses_exactly: bool = True  # whether a decimal number becomes the nearest double
    takes_empty_names: bool = False
    most_reads: int | None = None  # of a table in one query, all of its steps written out

    def identifier(self, name: str) -> str:
        """Quote an identifier."""
        if not name and not self.takes_empty_names:
            raise UnwritableText(name, f"is no name of a column in {self.name}")
        return self.quote + self._escaped(name, self.name_escapes) + self.quote

    def literal(self, value: str | int | bool) -> str:
        """Format a column value or class as a literal."""
        if isinstance(value, bool):
            return str(value).upper()
        return f"'{self._escaped(value, self.escapes)}'" if isinstance(value, str) else str(value)

    def number(self, x: float) -> str:
        """Format a double exactly."""
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
        """Return the largest of the given expressions."""
        return terms[0] if len(terms) == 1 else f"{self.greatest}({', '.join(terms)})"

    def exp(self, term: str) -> str:
        """Return the exponential, clipped because PostgreSQL raises an error on underflow."""
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
            floor="(CAST({0} AS INTEGER) - ({0} < CAST({0} AS INTEGER)))",  # FLOOR is not built in everywhere
            parses_exactly=False,
            takes_empty_names=True,
            most_reads=(1 << 16) - 1,
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


def find_sql_dialect(name: str) -> Dialect:
    """Return a dialect by name. Raises UnknownDialect."""
    if name not in DIALECTS:
        raise UnknownDialect(name)
    return DIALECTS[name]


# SQLite joins at most 64 tables.
MOST_JOINS = 50
# What stands for the logarithm of zero: databases write and add infinity in different ways, or not at all.
LOG_ZERO, IMPOSSIBLE = -1e300, "-1e200"


class Query:
    """Builder of a query from a chain of common table expressions.

    `prefix`: of the names of the model's tables.
    """

    def __init__(self, dialect: Dialect, n_classes: int, prefix: str) -> None:
        self.dialect, self.n_classes, self.prefix = dialect, n_classes, prefix
        self._steps: list[str] = []
        # How often each step reads each table of the model, by itself or through the steps that it reads.
        self._n_reads: dict[str, Counter[str]] = {}
        self._tables: set[str] = set()

    @property
    def n_steps(self) -> int:
        """Return the number of steps added."""
        return len(self._steps)

    def add(
        self, name: str, columns: Iterable[str], source: str, *, distinct: bool = False, is_shared: bool = False
    ) -> str:
        """Add a step that selects columns from `source`; returns its name, which begins with `name`. Several steps may
        read a shared one.
        """
        name = f"{name}_{len(self._steps)}"
        selected = ",\n    ".join(columns)
        chosen = "SELECT DISTINCT" if distinct else "SELECT"
        materialized = "MATERIALIZED " if self.dialect.materializes[is_shared] else ""
        self._steps.append(f"{name} AS {materialized}(\n  {chosen}\n    {selected}\n  FROM {source}\n)")
        self._n_reads[name] = self._reads_of(source)
        return name

    def _reads_of(self, source: str) -> Counter[str]:
        """Count how often a source reads each table of the model, all steps written out."""
        own = {table: len(re.findall(rf"{re.escape(table)}(?![\w.])", source)) for table in self._tables}
        counts = Counter(own)
        for step in re.findall(r"\b[a-z_]+_\d+\b(?!\.)", source):
            counts.update(self._n_reads.get(step, {}))
        return counts

    def most_reads(self, source: str) -> int:
        """Return how often the query of a source reads the table of the model that it reads most, all steps written out."""
        return max(self._reads_of(source).values(), default=0)

    def text(self, columns: Iterable[str], source: str) -> str:
        """Return the complete query with its result columns."""
        selected = ",\n  ".join(columns)
        return "WITH " + ",\n".join(self._steps) + f"\nSELECT\n  {selected}\nFROM {source}"

    def table(self, of: str) -> str:
        """Return the quoted name of one of the model's tables."""
        name = quote_table_name(self.dialect, self.prefix, of)
        self._tables.add(name)
        return name

    @property
    def classes(self) -> range:
        """Class indices."""
        return range(self.n_classes)

    def softmax(self, source: str, kept: Sequence[str], prior: Sequence[float], *, is_shared: bool = False) -> str:
        """Add the columns p0, p1, … and `evidence` from the log probabilities l0, l1, …; a row that no class can
        produce gets the prior.
        """
        dialect, classes = self.dialect, self.classes
        logs = [f"l{k}" for k in classes]
        source = self.add("largest", [*kept, *logs, f"{dialect.largest(logs)} AS m"], source)
        terms = [
            f"CASE WHEN m < {IMPOSSIBLE} THEN {dialect.number(prior[k])} ELSE {dialect.exp(f'l{k} - m')} END AS e{k}"
            for k in classes
        ]
        source = self.add("terms", [*kept, "m", *terms], source)
        total = balanced_sql_sum([f"e{k}" for k in classes])
        shares = [f"e{k} / {total} AS p{k}" for k in classes]
        return self.add("shares", [*kept, *shares, f"m + LN({total}) AS evidence"], source, is_shared=is_shared)


def quote_table_name(dialect: Dialect, prefix: str, of: str) -> str:
    """Return the quoted name of a table with part of the model; the prefix may include a schema."""
    return quote_qualified_name(dialect, f"{prefix}_{of}")


def quote_qualified_name(dialect: Dialect, name: str) -> str:
    """Quote a name, optionally with schema and catalog separated by dots."""
    return ".".join(map(dialect.identifier, name.split(".")))


def balanced_sql_sum(terms: Sequence[str]) -> str:
    """Return the sum of terms, nested so that no expression is deep."""
    if len(terms) <= 2:
        return "(" + " + ".join(terms) + ")"
    half = len(terms) // 2
    return f"({balanced_sql_sum(terms[:half])} + {balanced_sql_sum(terms[half:])})"
