"""Promotion decisions between champion and challenger: each is stored with its numbers, and moves the alias in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from storage.control import tables
from storage.control.audit import record_act
from storage.control.control import Control
from storage.control.paging import DEFAULT_LIMIT, Page, page_of_rows
from storage.errors import Conflict
from storage.files.workspace_layout import require_valid_name
from storage.models.aliases import aliased_version, set_alias_in_transaction
from storage.models.model_versions import nonfinite_metrics_as_null

_PROMOTIONS = tables.promotions


@dataclass(frozen=True)
class Promotion:
    """One decision under the rule of that time: whether the model's alias was moved to the challenger, and why."""

    name: str
    alias: str
    challenger: int
    champion: int | None  # the version that the alias pointed at; None if there was none
    is_promoted: bool
    reason: str
    rule: Mapping[str, object]
    challenger_metrics: Mapping[str, object] | None  # on the same rows, `measured_on`; None if it could not be measured
    champion_metrics: Mapping[str, object] | None
    measured_on: Mapping[str, object]
    job_id: str  # the job that decided; one job decides once for a model
    decided_at: datetime | None = None  # aware, UTC; set by `record_promotion`


def record_promotion(control: Control, promotion: Promotion) -> Promotion:
    """Store a decision and apply it atomically; if the same job repeats it, return the earlier decision.

    Raises Conflict if the champion is another one by now: then the decision was about the wrong versions; NotFound if the
    challenger is gone.
    """
    with control.writing() as connection:
        of_job = sa.select(_PROMOTIONS).where(
            _PROMOTIONS.c.name == promotion.name, _PROMOTIONS.c.job_id == promotion.job_id
        )
        row = connection.execute(of_job).one_or_none()
        if row is not None:
            return _promotion(row)
        if aliased_version(connection, promotion.name, promotion.alias) != promotion.champion:
            raise Conflict(
                "alias",
                f"{promotion.name}@{promotion.alias}",
                "was moved in the meantime. Evaluate the promotion again.",
            )
        if promotion.is_promoted:
            set_alias_in_transaction(
                connection, promotion.name, promotion.alias, promotion.challenger, promotion.reason
            )
        connection.execute(sa.insert(_PROMOTIONS).values(**_values(promotion)))
        subject = f"{promotion.name}@{promotion.challenger}"
        record_act(connection, "promotion decided", subject, is_promoted=promotion.is_promoted, reason=promotion.reason)
        return _promotion(connection.execute(of_job).one())


def list_promotions(
    control: Control, name: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[Promotion]:
    """Return a page of the decisions about a model, newest first; NotFound for an invalid name, InvalidCursor."""
    query = sa.select(_PROMOTIONS).where(_PROMOTIONS.c.name == require_valid_name("model", name))
    with control.reading() as connection:
        return page_of_rows(connection, query, _PROMOTIONS.c.id, limit, cursor, newest_first=True).of(_promotion)


def _values(promotion: Promotion) -> dict[str, object]:
    return vars(promotion) | {
        "rule": dict(promotion.rule),
        "challenger_metrics": promotion.challenger_metrics and nonfinite_metrics_as_null(promotion.challenger_metrics),
        "champion_metrics": promotion.champion_metrics and nonfinite_metrics_as_null(promotion.champion_metrics),
        "measured_on": dict(promotion.measured_on),
        "decided_at": tables.utc_now(),
    }


def _promotion(row: tables.Row) -> Promotion:
    values = dict(row._mapping)
    del values["id"]
    return Promotion(**values)
