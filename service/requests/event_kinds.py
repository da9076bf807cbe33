"""Kinds of events that webhooks are sent."""

from typing import Literal

EventKind = Literal["alert", "version.published", "alias.moved", "promotion.decided", "rows.forgotten", "job.failed"]
"""An alert, or an action in the audit log; `alert` includes fired and resolved alerts."""
