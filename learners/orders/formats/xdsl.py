"""XDSL: networks of GeNIe and SMILE."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from graphlib import TopologicalSorter

from learners.orders.formats.elements import Element, numbers_of
from learners.orders.formats.network_tables import Network, NetworkFileError
from learners.orders.formats.words import in_words, plain_names, with_meanings

ROOT = "smile"
# The user property of a node that tells what its words mean.
_MEANING = "fewpass"


def network_of(root: Element, where: str) -> Network:
    """The network of a document: its chance and deterministic nodes. Raises NetworkFileError, naming the line.

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
            raise NetworkFileError(where, node.line, f"node {name!r} is there twice")
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
            reason = "pyAgrum orders the probabilities of XDSL otherwise than GeNIe: save the network as .bifxml"
            raise NetworkFileError(where, application.line, reason)
    for node in nodes:
        for parent in parents[node.attributes["id"]]:
            if parent not in values:
                raise NetworkFileError(where, node.line, f"{parent!r} is no node")
    return with_meanings(Network(values, parents, tables), meanings, where)


def _id(element: Element, where: str) -> str:
    if not (name := element.attributes.get("id", "")):
        raise NetworkFileError(where, element.line, f"{element.tag} has no id")
    return name


def _row(node: Element, values: tuple[str, ...], where: str) -> tuple[float, ...]:
    """All probabilities of a node; of a deterministic one 1 for the state that follows."""
    if node.tag == "cpt":
        return numbers_of(node.only("probabilities", where), where)
    element = node.only("resultingstates", where)
    states = element.text.split()
    if unknown := [state for state in states if state not in values]:
        raise NetworkFileError(where, element.line, f"{unknown[0]!r} is no state of the node")
    return tuple(float(state == value) for state in states for value in values)


def write_xdsl(name: str, network: Network) -> str:
    """A network as text, parents first, with plain words as ids, and a user property that tells what they mean.

    Raises InvalidNetwork if a variable is continuous.
    """
    plain, meanings = in_words(network)
    root = ET.Element(ROOT, version="1.0", id=plain_names([name])[name], numsamples="10000", discsamples="10000")
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
