"""What a file of a network holds, whatever its format."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from learners.errors import LearnerError


class NetworkFileError(LearnerError, ValueError):
    """A file does not hold a network in the format that it begins in."""

    def __init__(self, where: str, line: int, reason: str) -> None:
        super().__init__(f"{where}, line {line}: {reason}.")
        self.where, self.line = where, line


class InvalidNetwork(LearnerError, ValueError):
    """Variables and tables are no Bayesian network, or none that a format can hold."""

    def __init__(self, variable: str, reason: str) -> None:
        super().__init__(f"Variable {variable!r} of the network {reason}.")
        self.variable = variable


@dataclass(frozen=True)
class Equation:
    """A number in a linear Gaussian network: intercept, weighted sum of its parents, and noise.

    Raises ValueError if it is not above 0.
    """

    intercept: float
    coefficients: tuple[float, ...]  # of each parent in order
    deviation: float  # standard, of the noise

    def __post_init__(self) -> None:
        if not self.deviation > 0:
            raise ValueError(f"a standard deviation above 0 is expected, not {self.deviation:g}")

    def in_words(self) -> tuple[str, list[str], str]:
        """All digits, without an exponent, which some programs do not read."""
        first, *others, last = (
            format(Decimal(repr(float(number))).normalize(), "f")
            for number in (self.intercept, *self.coefficients, self.deviation)
        )
        return first, others, last


def finite_number(word: str) -> float:
    """The number that a word is. Raises ValueError."""
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"a number is expected, not {word!r}")
    return number


@dataclass(frozen=True)
class Network:
    """Variables, their parents and their probabilities."""

    values: Mapping[str, tuple[str, ...]]  # of each variable, in the order of the file; empty of one that is continuous
    parents: Mapping[str, tuple[str, ...]]
    # Of each variable, the values of its parents to its probabilities; () to a whole table, the parents' values slowest
    # first.
    tables: Mapping[str, Mapping[tuple[str, ...], tuple[float, ...]]] = field(default_factory=dict)
    equations: Mapping[str, Equation] = field(default_factory=dict)  # of each continuous variable

    @property
    def edges(self) -> tuple[str, ...]:
        """Its edges as "parent->child", as queries take them."""
        return tuple(f"{parent}->{child}" for child, own in self.parents.items() for parent in own)

    def probabilities(self, variable: str) -> list[float]:
        """A whole table in one row, the first parent's values slowest and the variable's own fastest.

        Raises InvalidNetwork if the variable is continuous, or has no probabilities for some values of its parents.
        """
        if not self.values[variable]:
            raise InvalidNetwork(
                variable, "is continuous, which only BIF and equations can hold: write the network as bif or sem"
            )
        table = self.tables.get(variable, {})
        if () in table:
            return list(table[()])
        found: list[float] = []
        for context in itertools.product(*(self.values[parent] for parent in self.parents[variable])):
            if context not in table:
                raise InvalidNetwork(variable, f"has no probabilities for {context!r}")
            found += table[context]
        return found
