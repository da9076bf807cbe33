"""Of many wrong values the first are told, with their places; what is right is taken as it is."""

from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from learners.models.evidence import Known
from learners.models.query import AnyQuery
from service.requests.first_findings import AT_ONCE, Body, FirstFindings


class Told(Body):
    """With each kind of what holds several."""

    names: list[str] = Field(default_factory=list)
    pair: tuple[int, ...] = ()
    evidence: dict[str, Known] = Field(default_factory=dict)
    type: dict[str, list[int]] = Field(default_factory=dict)


TOLD = TypeAdapter(Told)
QUERY = TypeAdapter(Annotated[AnyQuery, FirstFindings()])


def findings(shape, told):
    with pytest.raises(ValidationError) as raised:
        shape.validate_python(told)
    return raised.value.errors()


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({"names": ["a", 1, 2, 3]}, ("names", 1)),
        ({"pair": [1, "x", "y"]}, ("pair", 1)),
        ({"type": {"a": [1], "b": [2, "x", "y"]}}, ("type", "b", 1)),
    ],
)
def test_a_list_ends_at_its_first_wrong_entry(told, place):
    (found,) = findings(TOLD, told)
    assert found["loc"] == place


def test_a_dict_ends_soon_after_its_first_wrong_member():
    told = {f"c{i}": "x" if i < 1000 else [[]] for i in range(5000)}
    found = findings(TOLD, {"evidence": told})
    assert found[0]["loc"][:2] == ("evidence", "c1000")
    assert {each["loc"][1] for each in found} == {f"c{i}" for i in range(1000, 1000 + AT_ONCE)}


def test_what_is_right_is_taken_as_it_is():
    told = {"names": ["a"] * 300, "pair": [1, 2], "evidence": {f"c{i}": [i, "x"] for i in range(3 * AT_ONCE + 1)}}
    assert TOLD.validate_python(told).model_dump(exclude_unset=True) == told | {"pair": (1, 2)}


def test_shapes_that_know_nothing_of_pydantic_end_early_too():
    found = findings(QUERY, {"kind": "conditional", "variables": [[]] * 500})
    assert len([each for each in found if each["loc"][0] == "Conditional"]) == 1


def test_a_shape_that_is_used_again_does_not_grow():
    """A server makes its routes, a test makes hundreds of servers; each use wraps the schema of the class."""
    adapters = [TypeAdapter(Annotated[Told, FirstFindings()]) for _ in range(3)]
    for adapter in adapters:
        adapter.rebuild()  # bodies defer the build of their schema
    schemas = [str(adapter.core_schema) for adapter in adapters]
    assert schemas[0].count("_in_pieces") == schemas[2].count("_in_pieces") > 0
