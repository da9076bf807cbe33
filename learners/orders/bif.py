"""The Bayesian Interchange Format: graphs with the probabilities of their nodes, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from learners.errors import LearnerError

# A comment, text in quotes, a word (which a number is, too), or a single mark.
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?P<text>[^"]*)"|(?P<word>[^\s{}()\[\]|,;"]+)|(?P<mark>[{}()\[\]|,;])', re.S)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BIFError(LearnerError, ValueError):
    """A file does not hold a network in the Bayesian Interchange Format."""

    def __init__(self, where: str, line: int, reason: str) -> None:
        super().__init__(f"{where}, line {line}: {reason}.")
        self.where, self.line = where, line


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
    """The words and marks of a text, one after the other."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self._found = [m for m in _TOKEN.finditer(text) if m.lastgroup is not None]
        self._at = 0

    def error(self, reason: str) -> BIFError:
        place = self._found[min(self._at, len(self._found)) - 1].start() if self._found else 0
        return BIFError(self.where, self.text.count("\n", 0, place) + 1, reason)

    @property
    def is_done(self) -> bool:
        return self._at == len(self._found)

    def next(self) -> str:
        if self.is_done:
            raise self.error("the file ends in the middle of a block")
        match = self._found[self._at]
        self._at += 1
        return match["text"] if match["text"] is not None else match[0]

    def is_at(self, mark: str) -> bool:
        """Whether a mark is next, which text in quotes is not."""
        return not self.is_done and self._found[self._at]["mark"] == mark

    def expect(self, mark: str) -> None:
        is_there = self.is_at(mark)
        token = self.next()
        if not is_there:
            raise self.error(f"{mark!r} is expected, not {token!r}")

    def until(self, mark: str) -> Iterator[str]:
        """Everything before a mark, which is taken, without commas."""
        while not self.is_at(mark):
            is_comma = self.is_at(",")
            token = self.next()
            if not is_comma:
                yield token
        self._at += 1


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
            list(tokens.until("{"))
            list(tokens.until("}"))
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
            parents[child], tables[child] = own, table
        else:
            raise tokens.error(f"'network', 'variable' or 'probability' is expected, not {block!r}")
    if not values:
        raise tokens.error("it has no variables")
    return Network(values, {name: parents.get(name, ()) for name in values}, tables)


def _values(tokens: _Tokens) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    tokens.expect("{")
    while not tokens.is_at("}"):
        word = tokens.next()
        if word == "type" and tokens.next() == "discrete":
            tokens.expect("[")
            list(tokens.until("]"))
            tokens.expect("{")
            found = tuple(tokens.until("}"))
        list(tokens.until(";"))
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
        if word in ("property", "default"):
            list(tokens.until(";"))
            continue
        given = tuple(tokens.until(")")) if has_values else ()
        if not has_values and word != "table":
            raise tokens.error(f"'table' or values of the parents are expected, not {word!r}")
        numbers = list(tokens.until(";"))
        try:
            table[given] = tuple(float(number) for number in numbers)
        except ValueError:
            raise tokens.error(f"a probability is expected among {', '.join(map(repr, numbers[:4]))}") from None
    tokens.expect("}")
    return child, own, table


def quoted(name: str) -> str:
    """A name as the format writes it."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', "'") + '"'


def write_bif(
    name: str,
    values: Mapping[str, Sequence[str]],
    parents: Mapping[str, Sequence[str]],
    tables: Mapping[str, Mapping[tuple[str, ...], Sequence[float]]],
    properties: Mapping[str, Mapping[str, str]],
) -> str:
    """A network as text.

    Parameters
    ----------
    name : str
    values, parents, tables
        As of `Network`.
    properties : mapping of str to mapping
        Of each variable, further lines of its probability.
    """
    lines = [f"network {quoted(name)} {{", "}"]
    for variable, own in values.items():
        kind = f"discrete [ {len(own)} ] {{ {', '.join(map(quoted, own))} }}" if own else "continuous"
        lines += [f"variable {quoted(variable)} {{", f"  type {kind};", "}"]
    for variable, above in parents.items():
        given = f" | {', '.join(map(quoted, above))}" if above else ""
        lines.append(f"probability ( {quoted(variable)}{given} ) {{")
        lines += [f'  property {key} "{text}";' for key, text in properties.get(variable, {}).items()]
        for key, row in tables.get(variable, {}).items():
            start = f"({', '.join(map(quoted, key))})" if key else "table"
            lines.append(f"  {start} {', '.join(f'{p:.10g}' for p in row)};")
        lines.append("}")
    return "\n".join(lines) + "\n"
