"""Elements of an XML file with their lines, read without entities and without any other file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from learners.orders.formats.network_tables import NetworkFileError

MOST_DEEP, MOST_ELEMENTS = 32, 1 << 20  # a million elements take some 400 MB


@dataclass(slots=True)
class Element:
    """An element with what is in it."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # between the children

    @property
    def text(self) -> str:
        """All text, without the space around it."""
        return "".join(self.texts).strip()

    def only(self, tag: str, where: str) -> Element:
        """Its one child of a tag. Raises NetworkFileError."""
        found = list(self.each(tag))
        if len(found) != 1:
            raise NetworkFileError(where, self.line, f"{self.tag} has {len(found)} elements {tag} instead of one")
        return found[0]

    def each(self, *tags: str) -> Iterator[Element]:
        """Its children of these tags."""
        return (child for child in self.children if child.tag in tags)


def parse_elements(content: bytes, where: str) -> Element:
    """The root of an XML document.

    Entities are refused, so that a small file cannot grow into a large one; of a DOCTYPE nothing else is read.
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
            refuse(f"elements are in each other more than {MOST_DEEP} deep")
        element = Element(tag, attributes, parser.CurrentLineNumber)
        path[-1].children.append(element)
        path.append(element)

    def text_in(text: str) -> None:
        path[-1].texts.append(text)

    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: path.pop()
    parser.CharacterDataHandler = text_in
    parser.EntityDeclHandler = lambda *_: refuse("it declares entities, which are not read: write their text instead")
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise NetworkFileError(where, error.lineno, f"it is no XML ({expat.ErrorString(error.code)})") from error
    except (ValueError, LookupError) as error:
        if isinstance(error, NetworkFileError):
            raise
        raise NetworkFileError(where, 1, f"its encoding cannot be read ({error})") from error
    return document.children[0]


def numbers_of(element: Element, where: str) -> tuple[float, ...]:
    """The numbers in the text of an element. Raises NetworkFileError."""
    words = element.text.split()
    try:
        return tuple(map(float, words))
    except ValueError:
        shown = ", ".join(map(repr, words[:4]))
        raise NetworkFileError(where, element.line, f"probabilities are expected among {shown}") from None
