"""Rules of rows that must not be learned from, stored in files beside statistics and recorded in the control database.

So a file of rules that is gone, or older than it was, brings no rows back unseen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import sqlalchemy as sa

from storage.control import tables
from storage.control.audit import record_act
from storage.control.control import Control
from storage.errors import CorruptFile
from storage.files.atomic_files import (
    exclusive_file_lock,
    json_with_checksum,
    parse_checked_json,
    write_file_atomically,
)

_RULES = tables.forgotten_rules
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Rule:
    """A rule of forgotten rows: their SQL condition, and the time since when, timezone-aware UTC."""

    where: str
    forgotten_at: datetime


class Withdrawal(TypedDict):
    """Withdrawal of a rule: when (ISO 8601, UTC), by whom, and why."""

    at: str
    by: str
    reason: str


class _Stored(TypedDict):
    """A rule as stored; a withdrawn rule stays in the file, and its last event counts."""

    where: str
    forgotten_at: str
    rows: dict[str, int]  # by the identity of each file that was searched
    footers: NotRequired[dict[str, int]]  # by the SHA-256 of each footer; rules of the first release lack it
    # By the identity of each file with such rows: their numbers by row group; rules of earlier releases lack it.
    groups: NotRequired[dict[str, dict[str, int]]]
    withdrawals: NotRequired[list[Withdrawal]]  # oldest first


def forgotten_rule_sha256(where: str) -> str:
    """Return the hash by which a model records the rules it was learned under: the text may name a person, and models
    are exported.
    """
    return hashlib.sha256(where.encode()).hexdigest()


class Forgotten:
    """Rules of one data set in one small file, replaced atomically; the first rule creates it.

    Each rule lists the searched files and their numbers of rows, so that no file is searched twice;
    and the same by their footers, which identify a moved or copied file. Raises CorruptFile if the file cannot
    be read: training without its rules would learn forgotten rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rules = _read(path)
        self._is_changed = False

    def rules(self) -> tuple[Rule, ...]:
        """Rules in force, in order of creation."""
        return tuple(Rule(where, _forgotten_at(rule)) for where, rule in self._rules.items() if _stands(rule))

    def conditions(self) -> frozenset[str]:
        """Conditions of all rules ever made, including withdrawn ones."""
        return frozenset(self._rules)

    def withdrawals(self, where: str) -> tuple[Withdrawal, ...]:
        """Withdrawals of a rule, oldest first."""
        return tuple(self._rules[where].get("withdrawals", ())) if where in self._rules else ()

    def add(self, where: str, since: datetime | None = None) -> None:
        """Add a rule; one in force stays unchanged.

        `since` is when the rule was made elsewhere, of which this is a copy: what was taken back here after that stays away.
        """
        rule = self._rules.get(where)
        if rule is None:
            moment = (since or datetime.now(UTC)).isoformat()
            self._rules[where] = {"where": where, "forgotten_at": moment, "rows": {}, "footers": {}}
            self._is_changed = True
        elif not _stands(rule):
            taken_back = _taken_back(rule)
            again = since or max(datetime.now(UTC), taken_back + timedelta(microseconds=1))
            if again > taken_back:
                self._rules[where] = {**rule, "forgotten_at": again.isoformat()}
                self._is_changed = True

    def withdraw(self, where: str, by: str, reason: str) -> Withdrawal:
        """Withdraw a rule; for one lost from the file, only its withdrawal is stored."""
        self.add(where)
        rule = self._rules[where]
        at = max(datetime.now(UTC), _forgotten_at(rule) + timedelta(microseconds=1))
        withdrawal: Withdrawal = {"at": at.isoformat(), "by": by, "reason": reason}
        self._rules[where] = {**rule, "withdrawals": [*rule.get("withdrawals", []), withdrawal]}
        self._is_changed = True
        return withdrawal

    def counts(self, where: str) -> dict[str, int]:
        """Return how many rows of each searched file the rule matches."""
        return dict(self._rules[where]["rows"]) if where in self._rules else {}

    def footers(self, where: str) -> dict[str, int]:
        """Return the same counts by the SHA-256 of the files' footers."""
        return dict(self._rules[where].get("footers", {})) if where in self._rules else {}

    def groups(self, where: str) -> dict[str, dict[int, int]]:
        """Return the number of matching rows in each row group, for files with known numbers."""
        stored = self._rules[where].get("groups", {}) if where in self._rules else {}
        rows = {} if where not in self._rules else self._rules[where]["rows"]
        known = {file: {int(group): n for group, n in own.items()} for file, own in stored.items()}
        return {file: own for file, own in known.items() if sum(own.values()) == rows.get(file)}

    def remember(
        self, where: str, file: str, footer_sha256: str, n_rows: int, groups: Mapping[int, int] | None = None
    ) -> None:
        """Store how many rows of a file the rule matches, and of its row groups."""
        if where in self._rules:
            self._rules[where]["rows"][file] = n_rows
            if groups is not None and n_rows:
                own = {str(group): n for group, n in groups.items()}
                self._rules[where].setdefault("groups", {})[file] = own
            footers = self._rules[where].setdefault("footers", {})
            footers[footer_sha256] = max(n_rows, footers.get(footer_sha256, 0))
            self._is_changed = True

    def save(self) -> None:
        """Write the changes, merged with those that others have written since this was read (Unwritable, CorruptFile)."""
        if self._is_changed:
            with exclusive_file_lock(self.path):
                self._rules = _merged(_read(self.path), self._rules)
                with write_file_atomically(self.path, replace=True) as draft:
                    draft.write_text(json_with_checksum({"rules": list(self._rules.values())}))
            self._is_changed = False


def _read(path: Path) -> dict[str, _Stored]:
    try:
        rules = cast("list[_Stored]", parse_checked_json(path, path.read_bytes())["rules"])
        return {rule["where"]: rule for rule in rules}
    except FileNotFoundError:
        return {}
    except CorruptFile:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFile(
            path, f"the rules of forgotten rows cannot be read ({error}). Restore the file from a backup."
        ) from error


def _merged(stored: dict[str, _Stored], ours: dict[str, _Stored]) -> dict[str, _Stored]:
    """Merge two sets of rules; the last event decides whether a rule is in force."""
    merged = dict(stored)
    for where, rule in ours.items():
        theirs = stored.get(where, rule)
        rows = theirs["rows"] | rule["rows"]
        footers = theirs.get("footers", {}) | rule.get("footers", {})
        merged[where] = {**theirs, "rows": rows, "footers": footers}
        if groups := theirs.get("groups", {}) | rule.get("groups", {}):
            merged[where]["groups"] = groups
        withdrawals = [*theirs.get("withdrawals", [])]
        withdrawals += [each for each in rule.get("withdrawals", []) if each not in withdrawals]
        if withdrawals:
            merged[where]["withdrawals"] = sorted(withdrawals, key=_moment)
        # The first of those who made a rule at once, unless it was taken back in between.
        moments = sorted({_forgotten_at(theirs), _forgotten_at(rule)})
        merged[where]["forgotten_at"] = next(
            (at for at in moments if at > _taken_back(merged[where])), moments[-1]
        ).isoformat()
    return merged


def _stands(rule: _Stored) -> bool:
    return _forgotten_at(rule) > _taken_back(rule)


def _forgotten_at(rule: _Stored) -> datetime:
    return datetime.fromisoformat(rule["forgotten_at"])


def _taken_back(rule: _Stored) -> datetime:
    return max(map(_moment, rule.get("withdrawals", [])), default=_NEVER)


def _moment(withdrawal: Withdrawal) -> datetime:
    return datetime.fromisoformat(withdrawal["at"])


def rule_conditions_by_path(control: Control) -> dict[Path, frozenset[str]]:
    """Return the conditions that each rules file must contain, including those of withdrawn rules.

    Files whose rules were all made by a release before 0005 are missing until they are next read by a training.
    """
    conditions_by_path: dict[Path, set[str]] = {}
    with control.reading() as connection:
        for row in connection.execute(sa.select(_RULES.c.path, _RULES.c.where_text)):
            conditions_by_path.setdefault(control.absolute(row.path), set()).add(row.where_text)
    return {path: frozenset(conditions) for path, conditions in conditions_by_path.items()}


def record_forgotten_rules(control: Control, path: Path, conditions: Iterable[str]) -> None:
    """Record the rules of a file after it was written; recorded ones stay.

    In this order a crash in between leaves a rule that stands and is noted by the next training, and a backup, which copies
    the database first, has every rule that its database names.
    """
    rules = {forgotten_rule_sha256(where): where for where in conditions}
    stored = control.relative(path)
    query = sa.select(_RULES.c.where_sha256).where(_RULES.c.path == stored)
    with control.reading() as connection:
        if rules.keys() <= set(connection.execute(query).scalars()):
            return
    with control.writing() as connection:
        missing = rules.keys() - set(connection.execute(query).scalars())
        rows = [{"path": stored, "where_sha256": sha256, "where_text": rules[sha256]} for sha256 in sorted(missing)]
        if rows:
            connection.execute(sa.insert(_RULES), rows)
            record_act(connection, "rule of forgotten rows made", path.parent.name, rules=len(rows))
