"""Names that become part of a path and of a URL: checked once, here."""

from __future__ import annotations

import re

from storage.errors import InvalidName, NotFound

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
RESERVED_ALIASES = frozenset({"latest", "versions"})


def checked_name(kind: str, name: str) -> str:
    """The name itself, if it is safe as a folder and in a URL.

    Raises InvalidName unless it is 1 to 64 of ``a-z 0-9 . _ -`` and starts with a letter or a digit.
    """
    if not is_name(name):
        raise InvalidName(kind, name, "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or a digit")
    return name


def is_name(name: object) -> bool:
    """Whether something of that name can exist at all. What is looked up comes from a URL: any text."""
    # fullmatch and not match with "$": that would let a trailing newline through.
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_version(number: int) -> bool:
    """Whether a version of that number can exist at all: columns of databases hold no greater ones."""
    return 1 <= number < 1 << 31


def known_name(kind: str, name: str) -> str:
    """The name itself; NotFound if nothing can have it."""
    if not is_name(name):
        raise NotFound(kind, name)
    return name


def checked_alias(alias: str) -> str:
    """The alias itself, if it cannot be mistaken for a version number or for a word of the API."""
    checked_name("alias", alias)
    if alias.isdigit() or alias in RESERVED_ALIASES:
        raise InvalidName("alias", alias, "a word: digits are version numbers, and 'latest' and 'versions' are taken")
    return alias


def checked_key(key: str) -> str:
    """The key itself, if it is a SHA-256 in lower-case hexadecimal digits."""
    if not isinstance(key, str) or not _SHA256.fullmatch(key):
        raise InvalidName("statistic", key, "the 64 lower-case hexadecimal digits of a SHA-256")
    return key
