"""Views: the same columns with several sets of cut points, used by the members of an ensemble."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from learners.kernels.arrays import Codes
from learners.schema.discretise_kernels import translate_view_codes
from learners.schema.schema import Attribute, Chunk, Schema

Integers = np.ndarray[Any, np.dtype[np.int64]]


class Views:
    """A schema with one attribute for every grouping of every attribute.

    An attribute without groupings has one view, its own codes; one with groupings has a view for each distinct
    grouping.

    `base`: the schema that encodes rows.
    `only`: use only the view of this grouping for each attribute.
    `schema`: a schema with one attribute per view; views of a column are adjacent and share its name.
    `attribute`, (n_views,) int64: the attribute of each view.
    """

    def __init__(self, schema: Schema, only: int | None = None) -> None:
        self.base, self.only = schema, only
        attributes: list[Attribute] = []
        attribute_of: list[int] = []
        tables: list[Any] = []
        self._places: list[tuple[int, ...]] = []
        for i, attribute in enumerate(schema.attributes):
            groupings = attribute.groupings if only is None else attribute.groupings[only : only + 1]
            distinct = list(dict.fromkeys(groupings))
            place = {grouping: len(attributes) + j for j, grouping in enumerate(distinct)}
            self._places.append(tuple(place[grouping] for grouping in groupings) or (len(attributes),))
            if not distinct:
                attributes.append(attribute)
                tables.append(np.arange(attribute.n_values + 1))
            for grouping in distinct:
                cuts = tuple(attribute.cuts[position] for position in grouping)
                view = replace(attribute, cuts=cuts, groupings=())
                attributes.append(view)
                tables.append(_codes(attribute, view, grouping))
            attribute_of += [i] * max(1, len(distinct))
        self.schema = replace(schema, attributes=tuple(attributes))
        self.attribute: Integers = np.array(attribute_of, np.int64)
        self._starts = np.concatenate([[0], np.cumsum([table.size for table in tables])]).astype(np.int64)
        self._tables = np.concatenate([*tables, np.empty(0)]).astype(self.schema.code_dtype)

    def of(self, attribute: int, grouping: int) -> int:
        """Return the view of an attribute for a grouping; an attribute without groupings has a single view."""
        places = self._places[attribute]
        return places[grouping] if len(places) > grouping else places[0]

    def chunk(self, rows: Chunk) -> Chunk:
        """Translate the rows to all views."""
        x = self.codes(rows.x)
        # Views have fewer cut points than their columns, so their codes may be of a narrower type.
        return Chunk(x, None if rows.y is None else rows.y.astype(x.dtype, copy=False))

    def codes(self, x: Codes) -> Codes:
        """Translate codes (n_attributes, n_rows), read-only, to all views: (n_views, n_rows), read-only."""
        of_views = np.empty((self.attribute.size, x.shape[1]), self._tables.dtype)
        translate_view_codes(x, self.attribute, self._starts, self._tables, of_views)
        of_views.setflags(write=False)
        return of_views


def _codes(attribute: Attribute, view: Attribute, grouping: tuple[int, ...]) -> Any:
    """Return the view's code for each code of the attribute, including the unseen one."""
    first = attribute.first_code
    intervals = np.searchsorted(np.array(grouping, np.int64), np.arange(len(attribute.cuts) + 1), side="left")
    return np.concatenate([np.zeros(first, np.int64), intervals + first, [view.n_values]])
