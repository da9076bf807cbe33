"""A query in steps, each a common table expression that reads the one before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from learners.registry.sql.dialects import Dialect

# SQLite joins at most 64 tables.
MOST_JOINS = 50
# What stands for the logarithm of zero: databases write and add infinity in different ways, or not at all.
LOG_ZERO, IMPOSSIBLE = -1e300, "-1e200"


class Query:
    """Common table expressions, one after the other.

    `prefix`: of the names of the tables that hold the model.
    """

    def __init__(self, dialect: Dialect, n_classes: int, prefix: str) -> None:
        self.dialect, self.n_classes, self.prefix = dialect, n_classes, prefix
        self._steps: list[str] = []

    def add(
        self, name: str, columns: Iterable[str], source: str, *, distinct: bool = False, is_shared: bool = False
    ) -> str:
        """SELECT some columns from what follows FROM; returns a new name that begins so. Several steps read what is shared."""
        name = f"{name}_{len(self._steps)}"
        selected = ",\n    ".join(columns)
        chosen = "SELECT DISTINCT" if distinct else "SELECT"
        materialized = "MATERIALIZED " if self.dialect.materializes[is_shared] else ""
        self._steps.append(f"{name} AS {materialized}(\n  {chosen}\n    {selected}\n  FROM {source}\n)")
        return name

    def text(self, columns: Iterable[str], source: str) -> str:
        """The whole query, with the columns that it gives."""
        selected = ",\n  ".join(columns)
        return "WITH " + ",\n".join(self._steps) + f"\nSELECT\n  {selected}\nFROM {source}"

    def table(self, of: str) -> str:
        """The quoted name of one of the tables that hold the model."""
        return table_name(self.dialect, self.prefix, of)

    @property
    def classes(self) -> range:
        """Numbers of the classes."""
        return range(self.n_classes)

    def softmax(self, source: str, kept: Sequence[str], prior: Sequence[float], *, is_shared: bool = False) -> str:
        """The columns p0, p1, … and `evidence` of the log probabilities l0, l1, …; a row that no class can produce has the prior."""
        dialect, classes = self.dialect, self.classes
        logs = [f"l{k}" for k in classes]
        source = self.add("largest", [*kept, *logs, f"{dialect.largest(logs)} AS m"], source)
        terms = [
            f"CASE WHEN m < {IMPOSSIBLE} THEN {dialect.number(prior[k])} ELSE {dialect.exp(f'l{k} - m')} END AS e{k}"
            for k in classes
        ]
        source = self.add("terms", [*kept, "m", *terms], source)
        total = added([f"e{k}" for k in classes])
        shares = [f"e{k} / {total} AS p{k}" for k in classes]
        return self.add("shares", [*kept, *shares, f"m + LN({total}) AS evidence"], source, is_shared=is_shared)


def table_name(dialect: Dialect, prefix: str, of: str) -> str:
    """The quoted name of a table that holds a part of the model; the prefix may name a schema."""
    return qualified(dialect, f"{prefix}_{of}")


def qualified(dialect: Dialect, name: str) -> str:
    """A name that may have a schema and a catalogue before it, separated by dots."""
    return ".".join(map(dialect.identifier, name.split(".")))


def added(terms: Sequence[str]) -> str:
    """The sum of some terms, so nested that no expression is deep."""
    if len(terms) <= 2:
        return "(" + " + ".join(terms) + ")"
    half = len(terms) // 2
    return f"({added(terms[:half])} + {added(terms[half:])})"
