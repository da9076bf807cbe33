"""The Bayesian Interchange Format: graphs with the probabilities of their nodes, as text."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from learners.errors import LearnerError

# Comments, text in quotes, words (which numbers are, too), and single marks; comments have no group.
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|("[^"]*"|[^\s{}()\[\]|,;"]+|[{}()\[\]|,;])', re.S)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# What a word of this module's own texts means, where it is none of the format's: a variable, and its values.
_MEANING = re.compile(r"^// means (\w+): (\[.*\])$", re.M | re.ASCII)
_KEYWORDS = frozenset(
    ["network", "variable", "probability", "table", "default", "property", "type", "discrete", "continuous"]
)


class BIFError(LearnerError, ValueError):
    """A file does not hold a network in the Bayesian Interchange Format."""

    def __init__(self, where: str, line: int, reason: str) -> None:
        super().__init__(f"{where}, line {line}: {reason}.")
        self.where, self.line = where, line


# The place of a row for all values of the parents that have none: no value, for it has a mark.
DEFAULT = ";"


@dataclass(frozen=True)
class Network:
    """What a file says.

    Parameters
    ----------
    values : mapping of str to tuple of str
        Of each variable, in the order of the file; empty of one that is continuous.
    parents : mapping of str to tuple of str
    tables : mapping of str to mapping
        Of each variable, the values of its parents to its probabilities; () to a whole table, the parents' values slowest
        first.
    """

    values: Mapping[str, tuple[str, ...]]
    parents: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, Mapping[tuple[str, ...], tuple[float, ...]]] = field(default_factory=dict)

    @property
    def edges(self) -> tuple[str, ...]:
        """Its edges as "parent->child", as queries take them."""
        return tuple(f"{parent}->{child}" for child, own in self.parents.items() for parent in own)


class _Tokens:
    """The words and marks of a text, one after the other; text in quotes keeps them until it is taken."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self._found = [token for token in _TOKEN.findall(text) if token]
        self._at = 0

    def error(self, reason: str) -> BIFError:
        last = max(min(self._at, len(self._found)) - 1, 0)
        starts = (match.start() for match in _TOKEN.finditer(self.text) if match[1])
        place = next(itertools.islice(starts, last, None), 0)
        return BIFError(self.where, self.text.count("\n", 0, place) + 1, reason)

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


def read_bif(path: str | Path) -> Network:
    """The network of a file.

    Raises
    ------
    BIFError
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BIFError(str(path), 1, f"it cannot be read ({error})") from error
    return parse_bif(text, str(path))


def parse_bif(text: str, where: str = "the text") -> Network:
    """The network of a text in the Bayesian Interchange Format.

    Raises
    ------
    BIFError
        Naming the line.
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
                table = dict.fromkeys(itertools.product(*(values[name] for name in own)), row) | table
            parents[child], tables[child] = own, table
        else:
            raise tokens.error(f"'network', 'variable' or 'probability' is expected, not {block!r}")
    if not values:
        raise tokens.error("it has no variables")
    network = Network(values, {name: parents.get(name, ()) for name in values}, tables)
    return _meant(network, text, where)


def _meant(network: Network, text: str, where: str) -> Network:
    """The network in the words that `write_bif` has replaced, as far as the text tells them."""
    names: dict[str, str] = {}
    words: dict[str, dict[str, str]] = {}
    for variable, told in _MEANING.findall(text):
        try:
            names[variable], words[variable] = json.loads(told)
        except ValueError as error:
            raise BIFError(where, text.count("\n", 0, text.index(told)) + 1, f"its JSON is none ({error})") from error
    if not names:
        return network

    def of(variable: str, value: str) -> str:
        return words.get(variable, {}).get(value, value)

    values = {names.get(v, v): tuple(of(v, value) for value in own) for v, own in network.values.items()}
    if len(values) < len(network.values):
        raise BIFError(where, 1, "two variables have the same meaning")
    parents = {names.get(v, v): tuple(names.get(u, u) for u in own) for v, own in network.parents.items()}
    tables = {
        names.get(v, v): {
            tuple(map(of, network.parents[v], key)) if key else key: row for key, row in network.tables[v].items()
        }
        for v in network.tables
    }
    return Network(values, parents, tables)


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


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Words that the format allows without quotes, each a different one: a letter first, then letters, digits and "_"."""
    found: dict[str, str] = {}
    # What is a word already stays; others make way.
    listed = list(names)
    taken = {name for name in listed if _is_plain(name)}
    for name in listed:
        word = name
        if not _is_plain(name):
            stem = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
            stem = stem if _is_plain(stem) else f"v{stem}" if stem else "v"
            word = next(word for word in _numbered(stem) if word not in taken)
            taken.add(word)
        found[name] = word
    return found


def _is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None and name not in _KEYWORDS


def _numbered(stem: str) -> Iterable[str]:
    yield stem
    yield from (f"{stem}_{n}" for n in itertools.count(2))


def write_bif(
    name: str,
    values: Mapping[str, Sequence[str]],
    parents: Mapping[str, Sequence[str]],
    tables: Mapping[str, Mapping[tuple[str, ...], Sequence[float]]],
    properties: Mapping[str, Mapping[str, str]],
) -> str:
    """A network as text that programs with the format's strict grammar read: names and values are words of ASCII.

    Comments tell what a word means that is none of the table's own; `parse_bif` puts the meanings back.

    Parameters
    ----------
    name : str
    values, parents, tables
        As of `Network`.
    properties : mapping of str to mapping
        Of each variable, further lines of its probability; those without text are left out.
    """
    names = plain_names(values)
    words = {variable: plain_names(own) for variable, own in values.items()}
    lines = [f"network {plain_names([name])[name]} {{", "}"]
    for variable, own in values.items():
        word = names[variable]
        meanings = {words[variable][value]: value for value in own if words[variable][value] != value}
        if word != variable or meanings:
            lines.append(f"// means {word}: {json.dumps([variable, meanings])}")
        of = ", ".join(words[variable][value] for value in own)
        kind = f"discrete [ {len(own)} ] {{ {of} }}" if own else "continuous"
        lines += [f"variable {word} {{", f"  type {kind};", "}"]
    for variable, above in parents.items():
        given = f" | {', '.join(names[parent] for parent in above)}" if above else ""
        lines.append(f"probability ( {names[variable]}{given} ) {{")
        lines += [f'  property {key} "{text}";' for key, text in properties.get(variable, {}).items() if text]
        for key, row in tables.get(variable, {}).items():
            told = ", ".join(words[parent][value] for parent, value in zip(above, key, strict=False))
            lines.append(f"  {f'({told})' if key else 'table'} {', '.join(f'{p:.10g}' for p in row)};")
        lines.append("}")
    return "\n".join(lines) + "\n"
