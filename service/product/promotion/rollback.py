"""Back to the version before, if labels say that the champion is worse: on the same rows, as a recorded decision."""

from datetime import UTC, datetime, timedelta

import numpy as np
import scipy
import structlog

from learners.schema import Chunk
from service.product.monitoring.labels import LEAST, labelled_codes
from service.product.monitoring.windows import Watching
from service.requests.json_values import JSONObject
from service.workspace import Workspace
from storage.errors import NotFound
from storage.models import aliases, models
from storage.models.models import CHAMPION

LEAST_PROBABILITY = 0.99
SPAN = timedelta(days=30)


def judged(workspace: Workspace, name: str, min_labels: int, now: datetime | None = None) -> JSONObject:
    """Compare the champion with the version before it on labelled rows that the champion has served.

    Both predict the same rows, which are kept in mode "rows"; the posterior of the mean difference of their log losses,
    with a flat prior, says how probably the champion is worse. Fewer than `min_labels` decide nothing. Returns
    `is_rolled_back`, `reason`, and the figures where there are any.
    """
    end = now or datetime.now(UTC)
    try:
        own = Watching(workspace, f"{name}@{CHAMPION}")
        before = _before(workspace, name, own.version.version)
        other = Watching(workspace, f"{name}@{before}")
    except (NotFound, LookupError):
        return {"is_rolled_back": False, "reason": "there is no version before the champion"}
    if own.watched.schema != other.watched.schema:
        reason = f"versions {own.version.version} and {before} code rows differently, so that they cannot be compared"
        return {"is_rolled_back": False, "reason": reason}
    x, y = labelled_codes(own.files, own.version.version, own.watched.schema, end - SPAN, end)
    if y.size < min_labels:
        return {
            "is_rolled_back": False,
            "reason": f"{y.size} labelled rows are fewer than the {min_labels} that decide",
        }
    losses = [
        -np.log(np.maximum(one.watched.model.predict_proba(Chunk(x, None))[np.arange(y.size), y], LEAST))
        for one in (own, other)
    ]
    difference = losses[0] - losses[1]
    error = float(difference.std(ddof=1) / np.sqrt(y.size))
    worse = float(scipy.special.ndtr(float(difference.mean()) / error)) if error else 0.5
    figures: JSONObject = {
        "n_rows": int(y.size),
        "champion": own.version.version,
        "before": before,
        "log_loss": float(losses[0].mean()),
        "log_loss_before": float(losses[1].mean()),
        "probability_worse": worse,
    }
    words = (
        f"log_loss {losses[0].mean():.6g} against {losses[1].mean():.6g} of version {before}, on {y.size} labelled rows"
    )
    if worse < LEAST_PROBABILITY:
        return figures | {"is_rolled_back": False, "reason": f"version {own.version.version} has {words}"}
    reason = f"rolled back: version {own.version.version} has {words}; worse with probability {worse:.4f}"
    aliases.roll_back(workspace.control, name, CHAMPION, reason)
    structlog.get_logger("monitor").warning("champion rolled back", model=name, reason=reason)
    return figures | {"is_rolled_back": True, "reason": reason}


def _before(workspace: Workspace, name: str, version: int) -> int:
    """The version that was champion before; LookupError if there is none."""
    moves = aliases.alias_history(workspace.control, name, 100).items
    known = {one.version for one in models.list_versions(workspace.control, name, limit=1000).items}
    others = [
        move.version for move in moves if move.alias == CHAMPION and move.version != version and move.version in known
    ]
    if not others:
        raise LookupError(name)
    return others[0]
