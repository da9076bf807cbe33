"""Network files of every format: read by content, written by file extension."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from learners.errors import InvalidParameter
from learners.orders.formats.bif import format_bif, format_structural_equations, parse_bif, parse_structural_equations
from learners.orders.formats.network_tables import Network, NetworkFileError
from learners.orders.formats.xml import (
    XDSL_ROOT,
    XMLBIF_ROOT,
    format_xdsl,
    format_xmlbif,
    parse_xdsl,
    parse_xml_root,
    parse_xmlbif,
)

NetworkFormat = Literal["bif", "xmlbif", "xdsl", "sem"]
MOST_BYTES = 64 << 20


class Format(NamedTuple):
    """File extensions, media type and writer of a format."""

    endings: tuple[str, ...]
    media_type: str
    write: Callable[[str, Network], str]


FORMATS: Mapping[NetworkFormat, Format] = {
    "bif": Format((".bif",), "text/plain", format_bif),
    "xmlbif": Format((".xmlbif", ".bifxml", ".xml"), "application/xml", format_xmlbif),
    "xdsl": Format((".xdsl",), "application/xml", format_xdsl),
    "sem": Format((".sem",), "text/plain", format_structural_equations),
}


def network_file_format(path: str | os.PathLike[str]) -> NetworkFormat | None:
    """Return the format for a path's extension, or None."""
    end = Path(path).suffix.lower()
    return next((name for name, known in FORMATS.items() if end in known.endings), None)


def choose_network_file_format(path: str | os.PathLike[str] | None, form: str | None) -> NetworkFormat:
    """Return the requested format, else the one for the file's extension; "bif" without either.

    Raises InvalidParameter if the format does not exist, or the extension is unknown.
    """
    if form is None and path is None:
        return "bif"
    name = network_file_format(path) if form is None and path is not None else form
    for known in FORMATS:
        if name == known:
            return known
    if form is None:
        endings = ", ".join(ending for known in FORMATS.values() for ending in known.endings)
        raise InvalidParameter(
            "path", str(path), because=f"the name of a network file ends in one of {endings}; or give a format"
        )
    raise InvalidParameter("format", form, f"one of {', '.join(FORMATS)}")


def read_network(path: str | os.PathLike[str]) -> Network:
    """Read a network file in the Bayesian Interchange Format, XMLBIF or XDSL, detected by its beginning, or as
    equations (.sem).

    Raises NetworkFileError, naming the line; InvalidParameter.
    """
    if not isinstance(path, str | os.PathLike):
        raise InvalidParameter("path", path, "a path")
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise NetworkFileError(str(path), 1, f"it cannot be read ({error})") from error
    if len(content) > MOST_BYTES:
        raise NetworkFileError(str(path), 1, f"it has more than {MOST_BYTES >> 20} MB")
    return parse_network(content, str(path))


def parse_network(content: bytes, where: str) -> Network:
    """Parse a network from a file's bytes; see `read_network`."""
    is_utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    if is_utf16 or content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<"):
        root = parse_xml_root(content, where)
        readers = {XMLBIF_ROOT: parse_xmlbif, XDSL_ROOT: parse_xdsl}
        if root.tag not in readers:
            raise NetworkFileError(where, root.line, f"<{root.tag}> is neither XMLBIF (<BIF>) nor XDSL (<smile>)")
        return readers[root.tag](root, where)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise NetworkFileError(where, line, "it is not text in UTF-8") from error
    return parse_structural_equations(text, where) if network_file_format(where) == "sem" else parse_bif(text, where)


def format_network(name: str, network: Network, form: NetworkFormat) -> str:
    """Format a network as the text of a file.

    Raises InvalidNetwork if a variable is continuous, which only BIF and equations (sem) support, or discrete, in
    equations.
    """
    return FORMATS[form].write(name, network)
