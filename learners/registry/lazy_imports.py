"""Tables and functions whose modules are imported when they are first used.

A core and its wings: circuits and posteriors over structures are entries of the tables of learners and of kinds, and
cost nothing until they are looked up. Entry points would do the same between distributions; within one they are read
from its metadata, which a zip or a source tree on the path has not, and which an editable install does not renew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar, cast

Entry = TypeVar("Entry")


def import_member(place: str) -> Any:
    """Import "module:name" and return the member."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def deferred(place: str) -> Callable[..., Any]:
    """Return a function that imports the function at "module:name" when it is first called, and calls it."""

    def call(*arguments: Any, **named: Any) -> Any:
        return import_member(place)(*arguments, **named)

    return call


class LazyTable(MutableMapping[str, Entry]):
    """A table whose entries may be given as "module:name", which is imported when the entry is first looked up.

    Names and their order are known without an import.
    """

    def __init__(self, entries: Mapping[str, Entry | str]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Entry:
        entry = self._entries[name]
        if isinstance(entry, str):
            entry = self._entries[name] = cast("Entry", import_member(entry))
        return entry

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
