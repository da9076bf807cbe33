"""Which rules of forgotten rows were made: a file of rules that is gone, or older than it was, brings no rows back unseen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import sqlalchemy as sa

from storage.control import tables
from storage.control.control import Control
from storage.datasets.forgotten import rule_sha256

_RULES = tables.forgotten_rules


def known_rules(control: Control) -> dict[Path, frozenset[str]]:
    """The conditions that each file of rules must have, those of rules that were taken back included.

    Files whose rules were all made by a release before 0005 are missing until they are next read by a training.
    """
    found: dict[Path, set[str]] = {}
    with control.reading() as connection:
        for row in connection.execute(sa.select(_RULES.c.path, _RULES.c.where_text)):
            found.setdefault(control.absolute(row.path), set()).add(row.where_text)
    return {path: frozenset(conditions) for path, conditions in found.items()}


def note_rules(control: Control, path: Path, conditions: Iterable[str]) -> None:
    """Note the rules of a file after it was written; those that are noted already stay.

    In this order a crash in between leaves a rule that stands and is noted by the next training, and a backup, which copies
    the database first, has every rule that its database names.
    """
    rules = {rule_sha256(where): where for where in conditions}
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
