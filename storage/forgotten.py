"""Rules of rows that must not be learned from, kept beside the statistics of a data set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.errors import CorruptFile
from storage.files import publish


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


class Forgotten:
    """The rules of one data set in one small file, replaced whole.

    Beside each rule stand the files that were searched and how many rows they had, so that no file is searched twice.

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
        self._rules: dict[str, dict[str, Any]] = {}
        self._is_changed = False
        try:
            self._rules = {rule["where"]: rule for rule in json.loads(path.read_text())["rules"]}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptFile(path, f"the rules of forgotten rows cannot be read ({error}). Restore it.") from error

    def rules(self) -> tuple[Rule, ...]:
        """In the order in which they came."""
        return tuple(Rule(where, datetime.fromisoformat(rule["forgotten_at"])) for where, rule in self._rules.items())

    def add(self, where: str) -> None:
        """Add a rule; one that is there already stays."""
        if where not in self._rules:
            now = datetime.now(UTC).isoformat()
            self._rules[where] = {"where": where, "forgotten_at": now, "rows": {}}
            self._is_changed = True

    def count(self, where: str, file: str) -> int | None:
        """How many rows of a file the rule matches, if it was searched."""
        known: int | None = self._rules[where]["rows"].get(file) if where in self._rules else None
        return known

    def remember(self, where: str, file: str, n_rows: int) -> None:
        """Note how many rows of a file the rule matches."""
        if where in self._rules:
            self._rules[where]["rows"][file] = n_rows
            self._is_changed = True

    def save(self) -> None:
        """Write what has changed.

        Raises
        ------
        Unwritable
        """
        if self._is_changed:
            with publish(self.path, replace=True) as draft:
                draft.write_text(json.dumps({"rules": list(self._rules.values())}, indent=1))
            self._is_changed = False
