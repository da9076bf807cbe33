"""Linear Gaussian networks as equations, which pyAgrum reads: `heat = 2 + 3*flow[0.5]`, the standard deviation of the noise last."""

from __future__ import annotations

from learners.orders.formats.network_tables import InvalidNetwork, Network
from learners.orders.formats.words import in_words

INTERCEPT, COEFFICIENTS, DEVIATION = "intercept", "coefficients", "deviation"


def write_sem(name: str, network: Network) -> str:
    """A network of numbers as text, with plain words as names, and comments that tell what they mean.

    Raises
    ------
    InvalidNetwork
        If a variable has values, or no equation is known.
    """
    plain, meanings = in_words(network)
    lines = [f"# network {name!r}", *(f"# means {word}: {text}" for word, text in meanings.items())]
    for variable, own in network.values.items():
        if own or DEVIATION not in network.properties.get(variable, {}):
            raise InvalidNetwork(variable, "is none of numbers, and equations (sem) hold only those: write it as BIF")
    for variable, above in plain.parents.items():
        told = plain.properties[variable]
        weights = [weight for weight in told[COEFFICIENTS].split(", ") if weight]
        terms = [told[INTERCEPT], *(f"{weight}*{parent}" for weight, parent in zip(weights, above, strict=True))]
        lines.append(f"{variable} = {' + '.join(terms)}[{told[DEVIATION]}]".replace("+ -", "- "))
    return "\n".join(lines) + "\n"
