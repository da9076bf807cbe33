"""Kinds of events that webhooks are sent."""

from typing import Literal

EventKind = Literal["alert", "version.published", "alias.moved", "promotion.decided", "rows.forgotten", "job.failed"]
"""An alert, or an act in the audit log; `alert` stands for alerts that are fired or resolved."""
