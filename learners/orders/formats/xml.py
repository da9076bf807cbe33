"""XML formats of networks: XMLBIF, and the XDSL of GeNIe and SMILE."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import NoReturn
from xml.parsers import expat

from learners.orders.formats.network_tables import (
    Network,
    NetworkFileError,
    replace_network_names,
    restore_network_names,
    unique_network_identifiers,
)

MOST_DEEP, MOST_ELEMENTS = 32, 1 << 20  # a million elements take some 400 MB
MOST_PROBABILITIES = 1 << 20  # of a deterministic node, whose text is much shorter than its table


@dataclass(slots=True)
class Element:
    """An XML element with its content."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # between the children

    @property
    def text(self) -> str:
        """All text, stripped of surrounding space."""
        return "".join(self.texts).strip()

    def only(self, tag: str, where: str) -> Element:
        """Return the only child with a tag. Raises NetworkFileError."""
        children = list(self.each(tag))
        if len(children) != 1:
            raise NetworkFileError(where, self.line, f"{self.tag} has {len(children)} elements {tag} instead of one")
        return children[0]

    def each(self, *tags: str) -> Iterator[Element]:
        """Yield the children with these tags."""
        return (child for child in self.children if child.tag in tags)


def parse_xml_root(content: bytes, where: str) -> Element:
    """Parse an XML document and return its root.

    Entities are refused, so that a small file cannot expand to a large one; the content of a DOCTYPE is ignored.
    Raises NetworkFileError, naming the line.
    """
    parser = expat.ParserCreate()
    document = Element("", {}, 1)
    path = [document]

    def refuse(reason: str) -> NoReturn:
        raise NetworkFileError(where, parser.CurrentLineNumber, reason)

    n_elements = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal n_elements
        n_elements += 1
        if n_elements > MOST_ELEMENTS:
            refuse(f"it has more than {MOST_ELEMENTS:,} elements")
        if len(path) > MOST_DEEP:
            refuse(f"elements are nested more than {MOST_DEEP} deep")
        element = Element(tag, attributes, parser.CurrentLineNumber)
        path[-1].children.append(element)
        path.append(element)

    def text_in(text: str) -> None:
        path[-1].texts.append(text)

    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: path.pop()
    parser.CharacterDataHandler = text_in
    parser.EntityDeclHandler = lambda *_: refuse(
        "it declares entities, which are not supported: write their text instead"
    )
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise NetworkFileError(where, error.lineno, f"it is not XML ({expat.ErrorString(error.code)})") from error
    except (ValueError, LookupError) as error:
        if isinstance(error, NetworkFileError):
            raise
        raise NetworkFileError(where, 1, f"its encoding cannot be read ({error})") from error
    return document.children[0]


def xml_element_numbers(element: Element, where: str) -> tuple[float, ...]:
    """Parse the numbers in the text of an element. Raises NetworkFileError."""
    words = element.text.split()
    try:
        return tuple(map(float, words))
    except ValueError:
        shown = ", ".join(map(repr, words[:4]))
        raise NetworkFileError(where, element.line, f"expected probabilities, not {shown}") from None


XMLBIF_ROOT, XDSL_ROOT = "BIF", "smile"
# The property of a variable, or node, that tells what its words mean; of a variable as `fewpass = [...]`.
_MEANING = "fewpass"


def parse_xmlbif(root: Element, where: str) -> Network:
    """Parse an XMLBIF document. Raises NetworkFileError, naming the line.

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
            raise NetworkFileError(where, variable.line, f"variable {name!r} is defined twice")
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
        own = tuple(parent.text for parent in definition.each("GIVEN"))
        if unknown := [name for name in (child, *own) if name not in values]:
            raise NetworkFileError(where, definition.line, f"{unknown[0]!r} is not a variable")
        if child in parents:
            raise NetworkFileError(where, definition.line, f"the definition of {child!r} is defined twice")
        parents[child] = own
        tables[child] = {(): xml_element_numbers(definition.only("TABLE", where), where)}
    return restore_network_names(
        Network(values, {name: parents.get(name, ()) for name in values}, tables), meanings, where
    )


def format_xmlbif(name: str, network: Network) -> str:
    """Format a network with plain identifiers as names and values, and a property with the original names.

    Raises InvalidNetwork if a variable is continuous.
    """
    plain, meanings = replace_network_names(network)
    root = ET.Element(XMLBIF_ROOT, VERSION="0.3")
    inside = ET.SubElement(root, "NETWORK")
    ET.SubElement(inside, "NAME").text = unique_network_identifiers([name])[name]
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


def parse_xdsl(root: Element, where: str) -> Network:
    """Parse an XDSL document's chance and deterministic nodes. Raises NetworkFileError, naming the line.

    References: https://support.bayesfusion.com/docs/SMILE/using_arrays.html, of the order of the probabilities.
    """
    nodes = [node for group in root.each("nodes") for node in group.children]
    if not nodes:
        raise NetworkFileError(where, root.line, "it has no nodes")
    values: dict[str, tuple[str, ...]] = {}
    parents: dict[str, tuple[str, ...]] = {}
    tables: dict[str, dict[tuple[str, ...], tuple[float, ...]]] = {}
    meanings: dict[str, tuple[str, int]] = {}
    for node in nodes:
        name = _id(node, where)
        if name in values:
            raise NetworkFileError(where, node.line, f"node {name!r} is defined twice")
        if node.tag not in ("cpt", "deterministic"):
            raise NetworkFileError(
                where,
                node.line,
                f"node {name!r} is of kind {node.tag!r}: change it to a table of probabilities in GeNIe",
            )
        values[name] = tuple(_id(state, where) for state in node.each("state"))
        parents[name] = tuple(parent for element in node.each("parents") for parent in element.text.split())
        tables[name] = {(): _row(node, values[name], where)}
        for element in node.each("property"):
            if element.attributes.get("id") == _MEANING:
                meanings[name] = (element.text, element.line)
    for application in (genie for added in root.each("extensions") for genie in added.each("genie")):
        if application.attributes.get("app", "").startswith("aGrUM") and any(len(own) > 1 for own in parents.values()):
            # pyAgrum 3.3.1 varies the first parent fastest, which GeNIe and SMILE vary slowest.
            reason = "pyAgrum orders the probabilities of XDSL differently from GeNIe: save the network as .bifxml"
            raise NetworkFileError(where, application.line, reason)
    for node in nodes:
        for parent in parents[node.attributes["id"]]:
            if parent not in values:
                raise NetworkFileError(where, node.line, f"{parent!r} is not a node")
    return restore_network_names(Network(values, parents, tables), meanings, where)


def _id(element: Element, where: str) -> str:
    if not (name := element.attributes.get("id", "")):
        raise NetworkFileError(where, element.line, f"{element.tag} has no id")
    return name


def _row(node: Element, values: tuple[str, ...], where: str) -> tuple[float, ...]:
    """Return all probabilities of a node; for a deterministic one, 1 for the resulting state."""
    if node.tag == "cpt":
        return xml_element_numbers(node.only("probabilities", where), where)
    element = node.only("resultingstates", where)
    states = element.text.split()
    known = set(values)
    if unknown := [state for state in states if state not in known]:
        raise NetworkFileError(where, element.line, f"{unknown[0]!r} is not a state of the node")
    if len(states) * len(values) > MOST_PROBABILITIES:
        raise NetworkFileError(where, element.line, f"its table has more than {MOST_PROBABILITIES:,} probabilities")
    return tuple(float(state == value) for state in states for value in values)


def format_xdsl(name: str, network: Network) -> str:
    """Format a network, parents first, with plain identifiers as ids, and a user property with the original names.

    Raises InvalidNetwork if a variable is continuous.
    """
    plain, meanings = replace_network_names(network)
    root = ET.Element(
        XDSL_ROOT, version="1.0", id=unique_network_identifiers([name])[name], numsamples="10000", discsamples="10000"
    )
    nodes = ET.SubElement(root, "nodes")
    labels = ET.SubElement(ET.SubElement(root, "extensions"), "genie", version="1.0", app="fewpass", name=name)
    own_names = dict(zip(plain.values, network.values, strict=True))
    for variable in TopologicalSorter(plain.parents).static_order():
        node = ET.SubElement(nodes, "cpt", id=variable)
        for value in plain.values[variable]:
            ET.SubElement(node, "state", id=value)
        if plain.parents[variable]:
            ET.SubElement(node, "parents").text = " ".join(plain.parents[variable])
        ET.SubElement(node, "probabilities").text = " ".join(map(repr, plain.probabilities(variable)))
        if variable in meanings:
            ET.SubElement(node, "property", id=_MEANING).text = meanings[variable]
        label = ET.SubElement(labels, "node", id=variable)
        # GeNIe shows it; XML has no control characters.
        ET.SubElement(label, "name").text = "".join(filter(str.isprintable, own_names[variable]))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
