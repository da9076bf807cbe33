"""Rules of rows that must not be learned from, kept beside the statistics of a data set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from storage.errors import CorruptFile
from storage.files import locked, publish
from storage.sums import checked_document, with_sum


@dataclass(frozen=True)
class Rule:
    """Rows that are forgotten.

    Parameters
    ----------
    where : the condition that they fulfil, in SQL
    forgotten_at : aware, UTC
    """

    where: str
    forgotten_at: datetime


class _Stored(TypedDict):
    """A rule as the file holds it."""

    where: str
    forgotten_at: str
    rows: dict[str, int]  # by the identity of each file that was searched
    footers: NotRequired[dict[str, int]]  # by the SHA-256 of each footer; rules of the first release lack it


def rule_sha256(where: str) -> str:
    """By which a model tells the rules that it was learned under: the text may name somebody, and models are carried elsewhere."""
    return hashlib.sha256(where.encode()).hexdigest()


class Forgotten:
    """The rules of one data set in one small file, replaced whole.

    Beside each rule stand the files that were searched and how many rows they had, so that no file is searched twice;
    and the same by their footers, which tell a file again that was moved or copied.

    Parameters
    ----------
    path : made by the first rule

    Raises
    ------
    CorruptFile
        If the file cannot be read: learning without its rules would learn what was to be forgotten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rules = _read(path)
        self._is_changed = False

    def rules(self) -> tuple[Rule, ...]:
        """In the order in which they came."""
        return tuple(Rule(where, datetime.fromisoformat(rule["forgotten_at"])) for where, rule in self._rules.items())

    def add(self, where: str) -> None:
        """Add a rule; one that is there already stays."""
        if where not in self._rules:
            now = datetime.now(UTC).isoformat()
            self._rules[where] = {"where": where, "forgotten_at": now, "rows": {}, "footers": {}}
            self._is_changed = True

    def count(self, where: str, file: str) -> int | None:
        """How many rows of a file the rule matches, if it was searched."""
        return self._rules[where]["rows"].get(file) if where in self._rules else None

    def counts(self, where: str) -> dict[str, int]:
        """How many rows of each file that was searched the rule matches."""
        return dict(self._rules[where]["rows"]) if where in self._rules else {}

    def footers(self, where: str) -> dict[str, int]:
        """The same by the SHA-256 of their footers."""
        return dict(self._rules[where].get("footers", {})) if where in self._rules else {}

    def remember(self, where: str, file: str, footer_sha256: str, n_rows: int) -> None:
        """Note how many rows of a file the rule matches."""
        if where in self._rules:
            self._rules[where]["rows"][file] = n_rows
            footers = self._rules[where].setdefault("footers", {})
            footers[footer_sha256] = max(n_rows, footers.get(footer_sha256, 0))
            self._is_changed = True

    def save(self) -> None:
        """Write what has changed, beside what others have written since this was read.

        Raises
        ------
        Unwritable, CorruptFile
        """
        if self._is_changed:
            with locked(self.path):
                self._rules = _merged(_read(self.path), self._rules)
                with publish(self.path, replace=True) as draft:
                    draft.write_text(with_sum({"rules": list(self._rules.values())}))
            self._is_changed = False


def _read(path: Path) -> dict[str, _Stored]:
    try:
        rules = cast("list[_Stored]", checked_document(path, path.read_bytes())["rules"])
        return {rule["where"]: rule for rule in rules}
    except FileNotFoundError:
        return {}
    except CorruptFile:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFile(path, f"the rules of forgotten rows cannot be read ({error}). Restore it.") from error


def _merged(stored: dict[str, _Stored], ours: dict[str, _Stored]) -> dict[str, _Stored]:
    """The rules of both; a rule is never taken back."""
    merged = dict(stored)
    for where, rule in ours.items():
        theirs = stored.get(where, rule)
        rows = theirs["rows"] | rule["rows"]
        footers = theirs.get("footers", {}) | rule.get("footers", {})
        merged[where] = {**theirs, "rows": rows, "footers": footers}
    return merged
