"""Text formats of networks: the Bayesian Interchange Format, and equations as in pyAgrum, `heat = 2 + 3*flow[0.5]`,
with the noise's standard deviation last.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from learners.orders.formats.network_tables import (
    Equation,
    InvalidNetwork,
    Network,
    NetworkFileError,
    parse_finite_number,
    parse_network_name_comments,
    replace_network_names,
    restore_network_names,
    unique_network_identifiers,
)

# Comments, a comment without an end, text in quotes, words (which numbers are, too), and single marks; comments have no
# group.
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|(/\*.*|"[^"]*"|[^\s{}()\[\]|,;"]+|[{}()\[\]|,;])', re.S)
# Properties of a continuous variable.
INTERCEPT, COEFFICIENTS, DEVIATION = "intercept", "coefficients", "deviation"
# The place of a row for all values of the parents that have none: no value, for it has a mark.
DEFAULT = ";"
# Rows that "default" may stand for.
MOST_ROWS = 1 << 20


class _Tokens:
    """Tokens of a text in order; quoted text keeps its quotes until it is taken."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self._found = [token for token in _TOKEN.findall(text) if token]
        self._at = 0
        if self._found and self._found[-1].startswith("/*"):
            self._at = len(self._found)
            raise self.error("the comment does not end")

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
        """Return whether a mark is next; quoted text is never a mark."""
        return not self.is_done and self._found[self._at] == mark

    def expect(self, mark: str) -> None:
        is_there = self.is_at(mark)
        token = self.next()
        if not is_there:
            raise self.error(f"expected {mark!r}, not {token!r}")

    def numbers(self, words: list[str]) -> list[float]:
        """Parse words that were already taken as numbers."""
        try:
            return [parse_finite_number(word) for word in words]
        except ValueError as error:
            raise self.error(str(error)) from None

    def until(self, mark: str) -> list[str]:
        """Take everything before a mark, and the mark, without commas."""
        try:
            end = self._found.index(mark, self._at)
        except ValueError:
            self._at = len(self._found)
            raise self.error("the file ends in the middle of a block") from None
        words = [_unquoted(token) for token in self._found[self._at : end] if token != ","]
        self._at = end + 1
        return words


def _unquoted(token: str) -> str:
    return token[1:-1] if token[0] == '"' else token


def parse_bif(text: str, where: str = "the text") -> Network:
    """Parse a network in the Bayesian Interchange Format. Raises NetworkFileError, naming the line.

    References: https://www.cs.cmu.edu/~fgcozman/Research/InterchangeFormat/Old/xmlbif02.html
    """
    tokens = _Tokens(text, where)
    values: dict[str, tuple[str, ...]] = {}
    parents: dict[str, tuple[str, ...]] = {}
    tables: dict[str, dict[tuple[str, ...], tuple[float, ...]]] = {}
    equations: dict[str, Equation] = {}
    while not tokens.is_done:
        block = tokens.next()
        if block == "network":
            tokens.until("{")
            tokens.until("}")
        elif block == "variable":
            name = tokens.next()
            if name in values:
                raise tokens.error(f"variable {name!r} is defined twice")
            values[name] = _values(tokens)
        elif block == "probability":
            child, own, table, properties = _probability(tokens, values)
            unknown = [name for name in (child, *own) if name not in values]
            if unknown or child in parents:
                raise tokens.error(
                    f"{unknown[0]!r} is not a variable" if unknown else f"the probability of {child!r} is defined twice"
                )
            if (DEFAULT,) in table:
                row = table.pop((DEFAULT,))
                n_rows = 1
                for name in own:
                    if (n_rows := n_rows * len(values[name])) > MOST_ROWS:
                        raise tokens.error(f"'default' stands for more than {MOST_ROWS:,} rows")
                table = dict.fromkeys(itertools.product(*(values[name] for name in own)), row) | table
            if own and () in table:
                table[()] = _own_fastest(table[()], len(values[child]))
            parents[child] = own
            if properties:
                equations[child] = _equation(tokens, own, properties)
            else:
                tables[child] = table
        else:
            raise tokens.error(f"expected 'network', 'variable' or 'probability', not {block!r}")
    if not values:
        raise tokens.error("it has no variables")
    network = Network(values, {name: parents.get(name, ()) for name in values}, tables, equations)
    return restore_network_names(network, parse_network_name_comments(text, "//"), where)


def _values(tokens: _Tokens) -> tuple[str, ...]:
    values: tuple[str, ...] = ()
    tokens.expect("{")
    while not tokens.is_at("}"):
        word = tokens.next()
        if word == "type" and tokens.next() == "discrete":
            tokens.expect("[")
            tokens.until("]")
            tokens.expect("{")
            values = tuple(tokens.until("}"))
        tokens.until(";")
    tokens.expect("}")
    return values


# Values of the parents to a row.
_Rows = dict[tuple[str, ...], tuple[float, ...]]


def _probability(
    tokens: _Tokens, values: Mapping[str, tuple[str, ...]]
) -> tuple[str, tuple[str, ...], _Rows, dict[str, list[float]]]:
    """Parse the variable, its parents, its table and, if it is continuous, the numbers of its equation."""
    tokens.expect("(")
    child = tokens.next()
    if tokens.is_at("|"):
        tokens.expect("|")
    own = tuple(tokens.until(")"))
    table: _Rows = {}
    properties: dict[str, list[float]] = {}
    tokens.expect("{")
    while not tokens.is_at("}"):
        has_values = tokens.is_at("(")
        word = tokens.next()
        if word == "property":
            key, *words = [*tokens.until(";"), ""]
            if not values.get(child, child) and key in (INTERCEPT, COEFFICIENTS, DEVIATION):
                properties[key] = tokens.numbers(" ".join(words).replace(",", " ").split())
            continue
        context = tuple(tokens.until(")")) if has_values else (DEFAULT,) if word == "default" else ()
        if not has_values and word not in ("table", "default"):
            raise tokens.error(f"expected 'table' or values of the parents, not {word!r}")
        numbers = tokens.until(";")
        try:
            table[context] = tuple(float(number) for number in numbers)
        except ValueError:
            raise tokens.error(f"expected probabilities, not {', '.join(map(repr, numbers[:4]))}") from None
    tokens.expect("}")
    return child, own, table, properties


def _equation(tokens: _Tokens, own: tuple[str, ...], properties: Mapping[str, list[float]]) -> Equation:
    parts = [properties.get(key, []) for key in (INTERCEPT, COEFFICIENTS, DEVIATION)]
    if [len(part) for part in parts] != [1, len(own), 1]:
        raise tokens.error(f"expected an intercept, {len(own)} coefficients and a deviation")
    try:
        return Equation(parts[0][0], tuple(parts[1]), parts[2][0])
    except ValueError as error:
        raise tokens.error(str(error)) from None


def _own_fastest(numbers: tuple[float, ...], n_values: int) -> tuple[float, ...]:
    """Reorder a whole table, in which the variable's own values may vary slowest, to the order of `Network`."""
    n_contexts = len(numbers) // max(n_values, 1)
    return tuple(p for context in range(n_contexts) for p in numbers[context::n_contexts])


def _rows(network: Network, variable: str) -> Mapping[tuple[str, ...], tuple[float, ...]]:
    """Return the probabilities by parent values, which all readers interpret alike."""
    table, above = network.tables.get(variable, {}), network.parents[variable]
    if not above or () not in table:
        return table
    n_values, numbers = len(network.values[variable]), table[()]
    contexts = itertools.product(*(network.values[parent] for parent in above))
    return {context: numbers[n * n_values : (n + 1) * n_values] for n, context in enumerate(contexts)}


def format_bif(name: str, network: Network) -> str:
    """Format a network with ASCII identifiers as names and values, for programs with the format's strict grammar.

    Comments give the original names of identifiers that differ; `parse_bif` restores them. Equations are
    properties of a variable's probability.
    """
    plain, meanings = replace_network_names(network)
    lines = [f"network {unique_network_identifiers([name])[name]} {{", "}"]
    for variable, own in plain.values.items():
        if variable in meanings:
            lines.append(f"// means {variable}: {meanings[variable]}")
        kind = f"discrete [ {len(own)} ] {{ {', '.join(own)} }}" if own else "continuous"
        lines += [f"variable {variable} {{", f"  type {kind};", "}"]
    for variable, above in plain.parents.items():
        parents = f" | {', '.join(above)}" if above else ""
        lines.append(f"probability ( {variable}{parents} ) {{")
        if variable in plain.equations:
            intercept, weights, deviation = plain.equations[variable].in_words()
            properties = {INTERCEPT: intercept, COEFFICIENTS: ", ".join(weights), DEVIATION: deviation}
            lines += [f'  property {key} "{text}";' for key, text in properties.items() if text]
        for key, row in _rows(plain, variable).items():
            place = f"({', '.join(key)})" if key else "table"
            lines.append(f"  {place} {', '.join(repr(float(p)) for p in row)};")
        lines.append("}")
    return "\n".join(lines) + "\n"


_EQUATION = re.compile(r"(\w+)\s*=([^\[\]]*)\[([^\[\]]*)\]")


def parse_structural_equations(text: str, where: str = "the text") -> Network:
    """Parse a network of equations such as `heat = 2 + 3*flow - 1*wind[0.5]`, one per line. Raises NetworkFileError,
    naming the line.
    """
    parents: dict[str, tuple[str, ...]] = {}
    equations: dict[str, Equation] = {}
    lines: dict[str, int] = {}
    for n, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _EQUATION.fullmatch(line.strip())
        if match is None:
            raise NetworkFileError(where, n, "expected an equation such as 'heat = 2 + 3*flow[0.5]'")
        variable = match[1]
        if variable in parents:
            raise NetworkFileError(where, n, f"variable {variable!r} is defined twice")
        intercept, *terms = match[2].strip().replace(" - ", " + -").split(" + ")
        pairs = [term.partition("*") for term in terms]
        parents[variable], lines[variable] = tuple(parent.strip() for _, _, parent in pairs), n
        try:
            weights = tuple(parse_finite_number(weight) for weight, _, _ in pairs)
            equations[variable] = Equation(parse_finite_number(intercept), weights, parse_finite_number(match[3]))
        except ValueError as error:
            raise NetworkFileError(where, n, str(error)) from None
    if not parents:
        raise NetworkFileError(where, 1, "it has no equations")
    for variable, own in parents.items():
        if unknown := [parent for parent in own if parent not in parents]:
            raise NetworkFileError(where, lines[variable], f"{unknown[0]!r} is not a variable")
    return restore_network_names(
        Network(dict.fromkeys(parents, ()), parents, {}, equations), parse_network_name_comments(text, "#"), where
    )


def format_structural_equations(name: str, network: Network) -> str:
    """Format a continuous network as equations with plain identifiers, and comments with the original names.

    Raises InvalidNetwork if a variable has values, or no equation is known.
    """
    plain, meanings = replace_network_names(network)
    lines = [f"# network {name!r}", *(f"# means {word}: {text}" for word, text in meanings.items())]
    for variable in network.values:
        if variable not in network.equations:
            raise InvalidNetwork(
                variable, "is discrete, but equations (sem) hold only numbers: write the network as BIF"
            )
    for variable, above in plain.parents.items():
        intercept, weights, deviation = plain.equations[variable].in_words()
        terms = [intercept, *(f"{weight}*{parent}" for weight, parent in zip(weights, above, strict=True))]
        lines.append(f"{variable} = {' + '.join(terms)}[{deviation}]".replace("+ -", "- "))
    return "\n".join(lines) + "\n"
