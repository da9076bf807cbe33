"""XMLBIF 0.3: the Bayesian Interchange Format in XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from learners.orders.formats.elements import Element, numbers_of
from learners.orders.formats.network_tables import Network, NetworkFileError
from learners.orders.formats.words import in_words, plain_names, with_meanings

ROOT = "BIF"
# The property of a variable that tells what its words mean; as `fewpass = [...]`.
_MEANING = "fewpass"


def network_of(root: Element, where: str) -> Network:
    """The network of a document. Raises NetworkFileError, naming the line.

    References: https://www.cs.cmu.edu/~fgcozman/Research/InterchangeFormat/
    """
    networks = list(root.each("NETWORK"))
    if len(networks) != 1:
        raise NetworkFileError(where, root.line, f"it has {len(networks)} elements NETWORK instead of one")
    values: dict[str, tuple[str, ...]] = {}
    meanings: dict[str, tuple[str, int]] = {}
    for variable in networks[0].each("VARIABLE"):
        name = variable.only("NAME", where).text
        if name in values:
            raise NetworkFileError(where, variable.line, f"variable {name!r} is there twice")
        if (kind := variable.attributes.get("TYPE", "nature")) != "nature":
            raise NetworkFileError(where, variable.line, f"variable {name!r} is of type {kind!r}, not 'nature'")
        values[name] = tuple(outcome.text for outcome in variable.each("OUTCOME"))
        for element in variable.each("PROPERTY"):
            key, _, text = element.text.partition("=")
            if key.strip() == _MEANING:
                meanings[name] = (text, element.line)
    if not values:
        raise NetworkFileError(where, networks[0].line, "it has no variables")
    parents: dict[str, tuple[str, ...]] = {}
    tables: dict[str, dict[tuple[str, ...], tuple[float, ...]]] = {}
    for definition in networks[0].each("DEFINITION", "PROBABILITY"):
        child = definition.only("FOR", where).text
        own = tuple(given.text for given in definition.each("GIVEN"))
        if unknown := [name for name in (child, *own) if name not in values]:
            raise NetworkFileError(where, definition.line, f"{unknown[0]!r} is no variable")
        if child in parents:
            raise NetworkFileError(where, definition.line, f"the definition of {child!r} is there twice")
        parents[child] = own
        tables[child] = {(): numbers_of(definition.only("TABLE", where), where)}
    return with_meanings(Network(values, {name: parents.get(name, ()) for name in values}, tables), meanings, where)


def write_xmlbif(name: str, network: Network) -> str:
    """A network as text, with plain words as names and values, and a property that tells what they mean.

    Raises InvalidNetwork if a variable is continuous.
    """
    plain, meanings = in_words(network)
    root = ET.Element(ROOT, VERSION="0.3")
    inside = ET.SubElement(root, "NETWORK")
    ET.SubElement(inside, "NAME").text = plain_names([name])[name]
    for variable, own in plain.values.items():
        element = ET.SubElement(inside, "VARIABLE", TYPE="nature")
        ET.SubElement(element, "NAME").text = variable
        for value in own:
            ET.SubElement(element, "OUTCOME").text = value
        if variable in meanings:
            ET.SubElement(element, "PROPERTY").text = f"{_MEANING} = {meanings[variable]}"
    for variable, above in plain.parents.items():
        element = ET.SubElement(inside, "DEFINITION")
        ET.SubElement(element, "FOR").text = variable
        for parent in above:
            ET.SubElement(element, "GIVEN").text = parent
        ET.SubElement(element, "TABLE").text = " ".join(map(repr, plain.probabilities(variable)))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
