"""Preconditions of a request: `If-Match` and `If-None-Match`, by which a client changes only the state that it has read.

References
----------
RFC 9110, HTTP Semantics, sections 8.8.3 (ETag) and 13.1 (preconditions).
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header

from service.requests.problems import InvalidRequest, PreconditionFailed
from storage.control.schedule_records import Schedule
from storage.models.model_versions import ModelVersion

_TAGS = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"(?:\s*,\s*(?:W/)?"[\x21\x23-\x7e]*")*')


def entity_tag(state: object) -> str:
    """The strong ETag, with its quotes, of a state that JSON can hold."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), default=str)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


@dataclass(frozen=True)
class Preconditions:
    """The preconditions of one request; without any, every check passes.

    Parameters
    ----------
    if_match : str or None
        ETags, one of which must be that of the present state, or "*" for any state.
    if_none_match : str or None
        "*" where the object must not exist yet.
    """

    if_match: str | None = None
    if_none_match: str | None = None

    def check_is_new(self, thing: str, *, exists: bool) -> None:
        """Raise PreconditionFailed if the object exists and the request creates it only with `If-None-Match: *`."""
        if exists and self.if_none_match is not None:
            raise PreconditionFailed(
                f"{thing} already exists, but the request has If-None-Match: *. Nothing was changed."
            )

    def check_matches(self, thing: str, tag: str | None) -> None:
        """Raise PreconditionFailed unless `If-Match` is absent or names the ETag of the present state; None if there is no object."""
        if self.if_match is None:
            return
        if tag is None:
            raise PreconditionFailed(f"{thing} does not exist, but the request has If-Match. Nothing was changed.")
        tags = [one.strip() for one in self.if_match.split(",")]
        if tags != ["*"] and tag not in tags:
            raise PreconditionFailed(
                f"{thing} changed after you read it, so nothing was changed. Read it again: its ETag is {tag}.",
                etag=tag,
            )


def preconditions(
    if_match: Annotated[
        str | None,
        Header(max_length=1000, description="`ETag` of the state that you read; 412 if it has changed since."),
    ] = None,
    if_none_match: Annotated[
        str | None, Header(max_length=10, description="`*`: only if the object does not exist yet, otherwise 412.")
    ] = None,
) -> Preconditions:
    """Return the preconditions of a request. Raises InvalidRequest if a header cannot be read."""
    if if_match is not None and if_match.strip() != "*" and not _TAGS.fullmatch(if_match.strip()):
        raise InvalidRequest(
            'If-Match is the ETag of an answer, with its quotes, such as "5f1e…", or *.', field="If-Match"
        )
    if if_none_match is not None and if_none_match.strip() != "*":
        raise InvalidRequest("If-None-Match must be *.", field="If-None-Match")
    return Preconditions(if_match, if_none_match)


OnlyIf = Annotated[Preconditions, Depends(preconditions)]
"""Parameter of a route that takes preconditions."""


def aliases_tag(moves: Mapping[str, int]) -> str:
    """ETag of the aliases of a model, by the number of the last move of each."""
    return entity_tag(dict(moves))


def version_tag(version: ModelVersion) -> str:
    """ETag of a model version, of which only the tags change."""
    return entity_tag([version.name, version.version, version.sha256, dict(version.tags)])


def schedule_tag(schedule: Schedule) -> str:
    """ETag of a schedule: its id and the time of its last change."""
    return entity_tag([schedule.id, schedule.changed_at])
