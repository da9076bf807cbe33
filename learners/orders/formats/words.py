"""Plain words in place of names and values, for programs that take no others, and the way back."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping

from learners.orders.formats.network_tables import Network, NetworkFileError

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYWORDS = frozenset(
    ["network", "variable", "probability", "table", "default", "property", "type", "discrete", "continuous"]
)
# What a word of our own texts means, where it is none of the table's: a variable, and its values.
_MEANING = r"^%s means (\w+): (\[.*\])$"
Renamings = Mapping[str, Mapping[str, str]]


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Words that every format allows, each a different one: a letter first, then letters, digits and "_"."""
    found: dict[str, str] = {}
    # What is a word already stays; others make way.
    listed = list(names)
    words = {name for name in listed if _is_plain(name)}
    for name in listed:
        word = name
        if not _is_plain(name):
            stem = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
            stem = stem if _is_plain(stem) else f"v{stem}" if stem else "v"
            word = next(word for word in _numbered(stem) if word not in words)
            words.add(word)
        found[name] = word
    return found


def in_words(network: Network) -> tuple[Network, dict[str, str]]:
    """The network in plain words, and of each variable whose words mean something else the meaning, as JSON.

    The JSON is the name, and a mapping of words to the values that they mean.
    """
    names = plain_names(network.values)
    words = {variable: plain_names(own) for variable, own in network.values.items()}
    meanings = {}
    for variable, word in names.items():
        others = {plain: value for value, plain in words[variable].items() if plain != value}
        if word != variable or others:
            meanings[word] = json.dumps([variable, others])
    return _renamed(network, names, words), meanings


def meanings_in(text: str, mark: str) -> dict[str, tuple[str, int]]:
    """What the comments of a text tell, with their lines; `mark` begins a comment."""
    found = re.finditer(_MEANING % mark, text, re.M | re.ASCII)
    return {match[1]: (match[2], text.count("\n", 0, match.start()) + 1) for match in found}


def with_meanings(network: Network, meanings: Mapping[str, tuple[str, int]], where: str) -> Network:
    """The network in the words that `in_words` has replaced. Raises NetworkFileError.

    `meanings` are the JSON of each variable that has one, and its line.
    """
    names: dict[str, str] = {}
    words: dict[str, Mapping[str, str]] = {}
    for variable, (text, line) in meanings.items():
        try:
            name, others = json.loads(text)
            names[variable], words[variable] = str(name), {str(word): str(value) for word, value in others.items()}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise NetworkFileError(where, line, f"its JSON is none of a name and its values ({error})") from error
    if len({names.get(variable, variable) for variable in network.values}) < len(network.values):
        raise NetworkFileError(where, 1, "two variables have the same meaning")
    return _renamed(network, names, words) if names else network


def _renamed(network: Network, names: Mapping[str, str], words: Renamings) -> Network:
    """Other names of variables and of their values; what is not named stays."""

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


def _numbered(stem: str) -> Iterable[str]:
    yield stem
    yield from (f"{stem}_{n}" for n in itertools.count(2))
