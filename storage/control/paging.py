"""Pagination by key and not by offset, so that a page never skips or repeats an item when others are added or removed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.control import tables
from storage.errors import InvalidCursor
from storage.files.workspace_layout import is_valid_name

Item = TypeVar("Item")
Made = TypeVar("Made")
MAX_LIMIT = 1000
MOST_NAMES = 1000  # that are looked through for a similar one
DEFAULT_LIMIT = 100


@dataclass(frozen=True)
class Page(Generic[Item]):
    """A page of a list; pass `next_cursor` to get the next page. It is None on the last page."""

    items: tuple[Item, ...]
    next_cursor: str | None

    def of(self, make: Callable[[Item], Made]) -> Page[Made]:
        """Return the page with `make` applied to each item."""
        return Page(tuple(map(make, self.items)), self.next_cursor)


def iterate_page_items(page_of: Callable[[int, str | None], Page[Item]]) -> Iterator[Item]:
    """Yield all items of a list, page by page; `page_of(limit, cursor)` returns one page."""
    cursor: str | None = None
    while True:
        page = page_of(MAX_LIMIT, cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def page_of_rows(
    connection: Connection,
    query: tables.Select,
    key: sa.ColumnElement[int] | sa.ColumnElement[str],
    limit: int,
    cursor: str | None,
    *,
    newest_first: bool = False,
) -> Page[tables.Row]:
    """Return the rows after the cursor, or from the start, by a unique key; `limit` is clipped to 1 … `MAX_LIMIT`.
    InvalidCursor.
    """
    limit = min(max(limit, 1), MAX_LIMIT)
    if cursor is not None:
        after = _key_of(cursor, key.type.python_type)
        query = query.where(key < after if newest_first else key > after)
    query = query.order_by(key.desc() if newest_first else key).limit(limit + 1)
    rows = connection.execute(query).all()
    if len(rows) <= limit:
        return Page(tuple(rows), None)
    last = json.dumps([rows[limit - 1]._mapping[key]])
    return Page(tuple(rows[:limit]), base64.urlsafe_b64encode(last.encode()).decode().rstrip("="))


def _key_of(cursor: str, python_type: type) -> int | str:
    try:
        (key,) = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError) as error:
        raise InvalidCursor(cursor) from error
    # Nothing but what a column of keys can hold goes to the database.
    is_number = python_type is int and type(key) is int and abs(key) < 2**31
    if not is_number and not (python_type is str and is_valid_name(key)):
        raise InvalidCursor(cursor)
    return cast("int | str", key)
