"""How many versions of a model to keep; `storage.models.removal.retain_versions` removes the others."""

from __future__ import annotations

import sqlalchemy as sa

from storage.control import tables
from storage.control.control import Control
from storage.errors import NotFound
from storage.names import known_name

_MODELS = tables.models


def set_retention(control: Control, name: str, keep: int | None) -> None:
    """Say how many versions of a model are to be kept, None for all; NotFound if there is no such model."""
    changed = sa.update(_MODELS).where(_MODELS.c.name == known_name("model", name)).values(keep_versions=keep)
    with control.writing() as connection:
        if connection.execute(changed).rowcount == 0:
            raise NotFound("model", name)


def retention(control: Control, name: str) -> int | None:
    """How many versions of a model are to be kept, None if all; NotFound if there is no such model."""
    query = sa.select(_MODELS.c.keep_versions).where(_MODELS.c.name == known_name("model", name))
    with control.reading() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound("model", name)
    kept: int | None = row.keep_versions
    return kept
