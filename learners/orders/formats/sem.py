"""Linear Gaussian networks as equations, which pyAgrum reads: `heat = 2 + 3*flow[0.5]`, the standard deviation of the noise last."""

from __future__ import annotations

import re

from learners.orders.formats.network_tables import Equation, InvalidNetwork, Network, NetworkFileError, finite_number
from learners.orders.formats.words import in_words, meanings_in, with_meanings

_EQUATION = re.compile(r"(\w+)\s*=([^\[\]]*)\[([^\[\]]*)\]")


def parse_sem(text: str, where: str = "the text") -> Network:
    """The network of equations such as `heat = 2 + 3*flow - 1*wind[0.5]`, one a line. Raises NetworkFileError, naming the line."""
    parents: dict[str, tuple[str, ...]] = {}
    equations: dict[str, Equation] = {}
    lines: dict[str, int] = {}
    for n, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _EQUATION.fullmatch(line.strip())
        if match is None:
            raise NetworkFileError(where, n, "an equation such as 'heat = 2 + 3*flow[0.5]' is expected")
        variable = match[1]
        if variable in parents:
            raise NetworkFileError(where, n, f"variable {variable!r} is there twice")
        intercept, *terms = match[2].strip().replace(" - ", " + -").split(" + ")
        pairs = [term.partition("*") for term in terms]
        parents[variable], lines[variable] = tuple(parent.strip() for _, _, parent in pairs), n
        try:
            weights = tuple(finite_number(weight) for weight, _, _ in pairs)
            equations[variable] = Equation(finite_number(intercept), weights, finite_number(match[3]))
        except ValueError as error:
            raise NetworkFileError(where, n, str(error)) from None
    if not parents:
        raise NetworkFileError(where, 1, "it has no equations")
    for variable, own in parents.items():
        if unknown := [parent for parent in own if parent not in parents]:
            raise NetworkFileError(where, lines[variable], f"{unknown[0]!r} is no variable")
    return with_meanings(Network(dict.fromkeys(parents, ()), parents, {}, equations), meanings_in(text, "#"), where)


def write_sem(name: str, network: Network) -> str:
    """A network of numbers as text, with plain words as names, and comments that tell what they mean.

    Raises InvalidNetwork if a variable has values, or no equation is known.
    """
    plain, meanings = in_words(network)
    lines = [f"# network {name!r}", *(f"# means {word}: {text}" for word, text in meanings.items())]
    for variable in network.values:
        if variable not in network.equations:
            raise InvalidNetwork(variable, "is none of numbers, and equations (sem) hold only those: write it as BIF")
    for variable, above in plain.parents.items():
        intercept, weights, deviation = plain.equations[variable].in_words()
        terms = [intercept, *(f"{weight}*{parent}" for weight, parent in zip(weights, above, strict=True))]
        lines.append(f"{variable} = {' + '.join(terms)}[{deviation}]".replace("+ -", "- "))
    return "\n".join(lines) + "\n"
