"""Network data common to all file formats, and the mapping between original names and plain identifiers."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from learners.errors import LearnerError

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYWORDS = frozenset(
    ["network", "variable", "probability", "table", "default", "property", "type", "discrete", "continuous"]
)
# What a word of our own texts means, where it is none of the table's: a variable, and its values.
_MEANING = r"^%s means (\w+): (\[.*\])$"
Renamings = Mapping[str, Mapping[str, str]]


def unique_network_identifiers(names: Iterable[str]) -> dict[str, str]:
    """Map names to distinct identifiers that every format allows: a letter first, then letters, digits and "_"."""
    identifiers: dict[str, str] = {}
    # What is a word already stays; others make way.
    listed = list(names)
    words = {name for name in listed if _is_plain(name)}
    for name in listed:
        word = name
        if not _is_plain(name):
            stem = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
            stem = stem if _is_plain(stem) else f"v{stem}" if stem else "v"
            numbered = itertools.chain([stem], (f"{stem}_{n}" for n in itertools.count(2)))
            word = next(word for word in numbered if word not in words)
            words.add(word)
        identifiers[name] = word
    return identifiers


def replace_network_names(network: Network) -> tuple[Network, dict[str, str]]:
    """Replace names by plain identifiers; returns the network, and for each changed variable its original names as
    JSON.

    The JSON is the name, and a mapping of identifiers to the original values.
    """
    names = unique_network_identifiers(network.values)
    words = {variable: unique_network_identifiers(own) for variable, own in network.values.items()}
    meanings = {}
    for variable, word in names.items():
        others = {plain: value for value, plain in words[variable].items() if plain != value}
        if word != variable or others:
            meanings[word] = json.dumps([variable, others])
    return _renamed(network, names, words), meanings


def parse_network_name_comments(text: str, mark: str) -> dict[str, tuple[str, int]]:
    """Return the name comments of a text, with their lines; `mark` begins a comment."""
    comments: dict[str, tuple[str, int]] = {}
    line, counted = 1, 0
    for match in re.finditer(_MEANING % mark, text, re.M | re.ASCII):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        comments[match[1]] = match[2], line
    return comments


def restore_network_names(network: Network, meanings: Mapping[str, tuple[str, int]], where: str) -> Network:
    """Restore the names that `replace_network_names` replaced. Raises NetworkFileError.

    `meanings`: the JSON of each changed variable, and its line.
    """
    names: dict[str, str] = {}
    words: dict[str, Mapping[str, str]] = {}
    for variable, (text, line) in meanings.items():
        try:
            name, others = json.loads(text)
            names[variable], words[variable] = str(name), {str(word): str(value) for word, value in others.items()}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise NetworkFileError(where, line, f"its JSON must hold a name and its values ({error})") from error
    if len({names.get(variable, variable) for variable in network.values}) < len(network.values):
        raise NetworkFileError(where, 1, "two variables have the same meaning")
    return _renamed(network, names, words) if names else network


def _renamed(network: Network, names: Mapping[str, str], words: Renamings) -> Network:
    """Rename variables and their values; names without an entry are unchanged."""

    def name(variable: str) -> str:
        return names.get(variable, variable)

    def value(variable: str, of: str) -> str:
        return words.get(variable, {}).get(of, of)

    parents = network.parents
    return Network(
        {name(v): tuple(value(v, each) for each in own) for v, own in network.values.items()},
        {name(v): tuple(map(name, own)) for v, own in parents.items()},
        {
            name(v): {tuple(map(value, parents[v], key)) if key else key: row for key, row in table.items()}
            for v, table in network.tables.items()
        },
        {name(v): own for v, own in network.equations.items()},
    )


def _is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None and name not in _KEYWORDS


class NetworkFileError(LearnerError, ValueError):
    """Raised if a file does not contain a network in its apparent format."""

    def __init__(self, where: str, line: int, reason: str) -> None:
        super().__init__(f"{where}, line {line}: {reason}.")
        self.where, self.line = where, line


class InvalidNetwork(LearnerError, ValueError):
    """Raised if variables and tables are not a Bayesian network, or not supported by a format."""

    def __init__(self, variable: str, reason: str) -> None:
        super().__init__(f"Variable {variable!r} of the network {reason}.")
        self.variable = variable


@dataclass(frozen=True)
class Equation:
    """A variable of a linear Gaussian network: intercept, weighted sum of its parents, and noise.

    Raises ValueError if the deviation is not above 0.
    """

    intercept: float
    coefficients: tuple[float, ...]  # of each parent in order
    deviation: float  # standard, of the noise

    def __post_init__(self) -> None:
        if not self.deviation > 0:
            raise ValueError(f"expected a standard deviation above 0, not {self.deviation:g}")

    def in_words(self) -> tuple[str, list[str], str]:
        """Format the numbers with all digits and without exponents, which some programs do not read."""
        first, *others, last = (
            format(Decimal(repr(float(number))).normalize(), "f")
            for number in (self.intercept, *self.coefficients, self.deviation)
        )
        return first, others, last


def parse_finite_number(word: str) -> float:
    """Parse a finite number. Raises ValueError."""
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"expected a number, not {word!r}")
    return number


@dataclass(frozen=True)
class Network:
    """Variables, their parents and their probabilities."""

    values: Mapping[str, tuple[str, ...]]  # of each variable, in the order of the file; empty of one that is continuous
    parents: Mapping[str, tuple[str, ...]]
    # For each variable, maps the values of its parents to its probabilities; () to a whole table, the parents' values slowest
    # first.
    tables: Mapping[str, Mapping[tuple[str, ...], tuple[float, ...]]] = field(default_factory=dict)
    equations: Mapping[str, Equation] = field(default_factory=dict)  # of each continuous variable

    @property
    def edges(self) -> tuple[str, ...]:
        """Return the edges as "parent->child", as in queries."""
        return tuple(f"{parent}->{child}" for child, own in self.parents.items() for parent in own)

    def probabilities(self, variable: str) -> list[float]:
        """Return a whole table in one row, the first parent's values slowest and the variable's own fastest.

        Raises InvalidNetwork if the variable is continuous, or has no probabilities for some values of its parents.
        """
        if not self.values[variable]:
            raise InvalidNetwork(
                variable, "is continuous, which only BIF and equations can hold: write the network as bif or sem"
            )
        table = self.tables.get(variable, {})
        if () in table:
            return list(table[()])
        row: list[float] = []
        for context in itertools.product(*(self.values[parent] for parent in self.parents[variable])):
            if context not in table:
                raise InvalidNetwork(variable, f"has no probabilities for {context!r}")
            row += table[context]
        return row
