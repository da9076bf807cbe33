"""Shapes that several resources answer with."""

from datetime import datetime
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from service.requests.json_values import JSONObject

Item = TypeVar("Item")


class Shape(BaseModel):
    """Base of the answers: read from our frozen dataclasses."""

    model_config = ConfigDict(from_attributes=True)


class PageShape(Shape, Generic[Item]):
    """Some items of a list; `next_cursor` asks for those that follow, and is null at the end."""

    items: list[Item]
    next_cursor: str | None = None


class Problem(BaseModel):
    """RFC 9457 problem+json; members beyond these name the offending thing, such as `column` or `field`."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:fewpass:problem:not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no model 'incom'. List the models to see which exist."])
    instance: str | None = Field(default=None, examples=["/v1/models/incom"])


class ModelVersionShape(Shape):
    """One immutable version of a model."""

    name: str
    version: int
    learner: str
    parameters: JSONObject
    dataset: str | None
    metrics: JSONObject
    job_id: str | None
    n_rows: int
    files: list[JSONObject]
    sha256: str
    tags: dict[str, str]
    created_at: datetime | None


def answers(*media_types: str) -> dict[int | str, JSONObject]:
    """What OpenAPI says of an answer of one of some media types, whose shape it does not tell."""
    binary: JSONObject = {"type": "string", "format": "binary"}
    schemas = {each: {} if each.endswith("json") else binary for each in media_types}
    return {200: {"content": {each: {"schema": schema} for each, schema in schemas.items()}}}
