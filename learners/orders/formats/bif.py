"""The Bayesian Interchange Format: graphs with the probabilities of their nodes, as text."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping

from learners.orders.formats.network_tables import Network, NetworkFileError
from learners.orders.formats.words import in_words, plain_names, with_meanings

# Comments, text in quotes, words (which numbers are, too), and single marks; comments have no group.
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|("[^"]*"|[^\s{}()\[\]|,;"]+|[{}()\[\]|,;])', re.S)
# What a word of this module's own texts means, where it is none of the format's: a variable, and its values.
_MEANING = re.compile(r"^// means (\w+): (\[.*\])$", re.M | re.ASCII)
# The place of a row for all values of the parents that have none: no value, for it has a mark.
DEFAULT = ";"
# Rows that "default" may stand for.
MOST_ROWS = 1 << 20


class _Tokens:
    """The words and marks of a text, one after the other; text in quotes keeps them until it is taken."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self._found = [token for token in _TOKEN.findall(text) if token]
        self._at = 0

    def error(self, reason: str) -> NetworkFileError:
        last = max(min(self._at, len(self._found)) - 1, 0)
        starts = (match.start() for match in _TOKEN.finditer(self.text) if match[1])
        place = next(itertools.islice(starts, last, None), 0)
        return NetworkFileError(self.where, self.text.count("\n", 0, place) + 1, reason)

    @property
    def is_done(self) -> bool:
        return self._at == len(self._found)

    def next(self) -> str:
        if self.is_done:
            raise self.error("the file ends in the middle of a block")
        self._at += 1
        return _unquoted(self._found[self._at - 1])

    def is_at(self, mark: str) -> bool:
        """Whether a mark is next, which text in quotes is not."""
        return not self.is_done and self._found[self._at] == mark

    def expect(self, mark: str) -> None:
        is_there = self.is_at(mark)
        token = self.next()
        if not is_there:
            raise self.error(f"{mark!r} is expected, not {token!r}")

    def until(self, mark: str) -> list[str]:
        """Everything before a mark, which is taken, without commas."""
        try:
            end = self._found.index(mark, self._at)
        except ValueError:
            self._at = len(self._found)
            raise self.error("the file ends in the middle of a block") from None
        found = [_unquoted(token) for token in self._found[self._at : end] if token != ","]
        self._at = end + 1
        return found


def _unquoted(token: str) -> str:
    return token[1:-1] if token[0] == '"' else token


def parse_bif(text: str, where: str = "the text") -> Network:
    """The network of a text in the Bayesian Interchange Format.

    Raises
    ------
    NetworkFileError
        Naming the line.

    References
    ----------
    https://www.cs.cmu.edu/~fgcozman/Research/InterchangeFormat/Old/xmlbif02.html
    """
    tokens = _Tokens(text, where)
    values: dict[str, tuple[str, ...]] = {}
    parents: dict[str, tuple[str, ...]] = {}
    tables: dict[str, dict[tuple[str, ...], tuple[float, ...]]] = {}
    while not tokens.is_done:
        block = tokens.next()
        if block == "network":
            tokens.until("{")
            tokens.until("}")
        elif block == "variable":
            name = tokens.next()
            if name in values:
                raise tokens.error(f"variable {name!r} is there twice")
            values[name] = _values(tokens)
        elif block == "probability":
            child, own, table = _probability(tokens)
            unknown = [name for name in (child, *own) if name not in values]
            if unknown or child in parents:
                raise tokens.error(
                    f"{unknown[0]!r} is no variable" if unknown else f"the probability of {child!r} is there twice"
                )
            if (DEFAULT,) in table:
                row = table.pop((DEFAULT,))
                if (n_rows := math.prod(len(values[name]) for name in own)) > MOST_ROWS:
                    raise tokens.error(f"'default' stands for {n_rows:,} rows, more than {MOST_ROWS:,}")
                table = dict.fromkeys(itertools.product(*(values[name] for name in own)), row) | table
            if own and () in table:
                table[()] = _own_fastest(table[()], len(values[child]))
            parents[child], tables[child] = own, table
        else:
            raise tokens.error(f"'network', 'variable' or 'probability' is expected, not {block!r}")
    if not values:
        raise tokens.error("it has no variables")
    network = Network(values, {name: parents.get(name, ()) for name in values}, tables)
    meanings = {match[1]: (match[2], text.count("\n", 0, match.start()) + 1) for match in _MEANING.finditer(text)}
    return with_meanings(network, meanings, where)


def _values(tokens: _Tokens) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    tokens.expect("{")
    while not tokens.is_at("}"):
        word = tokens.next()
        if word == "type" and tokens.next() == "discrete":
            tokens.expect("[")
            tokens.until("]")
            tokens.expect("{")
            found = tuple(tokens.until("}"))
        tokens.until(";")
    tokens.expect("}")
    return found


def _probability(tokens: _Tokens) -> tuple[str, tuple[str, ...], dict[tuple[str, ...], tuple[float, ...]]]:
    tokens.expect("(")
    child = tokens.next()
    if tokens.is_at("|"):
        tokens.expect("|")
    own = tuple(tokens.until(")"))
    table: dict[tuple[str, ...], tuple[float, ...]] = {}
    tokens.expect("{")
    while not tokens.is_at("}"):
        has_values = tokens.is_at("(")
        word = tokens.next()
        if word == "property":
            tokens.until(";")
            continue
        given = tuple(tokens.until(")")) if has_values else (DEFAULT,) if word == "default" else ()
        if not has_values and word not in ("table", "default"):
            raise tokens.error(f"'table' or values of the parents are expected, not {word!r}")
        numbers = tokens.until(";")
        try:
            table[given] = tuple(float(number) for number in numbers)
        except ValueError:
            raise tokens.error(f"a probability is expected among {', '.join(map(repr, numbers[:4]))}") from None
    tokens.expect("}")
    return child, own, table


def _own_fastest(numbers: tuple[float, ...], n_values: int) -> tuple[float, ...]:
    """A whole table, in which the format lets the variable's own values vary slowest, in the order of `Network`."""
    n_contexts = len(numbers) // max(n_values, 1)
    return tuple(p for context in range(n_contexts) for p in numbers[context::n_contexts])


def _rows(network: Network, variable: str) -> Mapping[tuple[str, ...], tuple[float, ...]]:
    """The probabilities by the parents' values, which no reader takes in another order."""
    table, above = network.tables.get(variable, {}), network.parents[variable]
    if not above or () not in table:
        return table
    n_values, numbers = len(network.values[variable]), table[()]
    contexts = itertools.product(*(network.values[parent] for parent in above))
    return {context: numbers[n * n_values : (n + 1) * n_values] for n, context in enumerate(contexts)}


def write_bif(name: str, network: Network) -> str:
    """A network as text that programs with the format's strict grammar read: names and values are words of ASCII.

    Comments tell what a word means that is none of the table's own; `parse_bif` puts the meanings back.

    Parameters
    ----------
    network : Network
        Its properties are further lines of a variable's probability; those without text are left out.
    """
    plain, meanings = in_words(network)
    lines = [f"network {plain_names([name])[name]} {{", "}"]
    for variable, own in plain.values.items():
        if variable in meanings:
            lines.append(f"// means {variable}: {meanings[variable]}")
        kind = f"discrete [ {len(own)} ] {{ {', '.join(own)} }}" if own else "continuous"
        lines += [f"variable {variable} {{", f"  type {kind};", "}"]
    for variable, above in plain.parents.items():
        given = f" | {', '.join(above)}" if above else ""
        lines.append(f"probability ( {variable}{given} ) {{")
        lines += [f'  property {key} "{text}";' for key, text in plain.properties.get(variable, {}).items() if text]
        for key, row in _rows(plain, variable).items():
            told = f"({', '.join(key)})" if key else "table"
            lines.append(f"  {told} {', '.join(repr(float(p)) for p in row)};")
        lines.append("}")
    return "\n".join(lines) + "\n"
