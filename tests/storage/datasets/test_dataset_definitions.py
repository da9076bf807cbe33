"""Datasets: registered once, found, listed in pages, deleted."""

import pytest

from storage.control.control import control_generation
from storage.datasets.dataset_definitions import (
    Dataset,
    delete_dataset,
    get_dataset,
    list_datasets,
    register_dataset,
    set_dataset_schema,
)
from storage.errors import Conflict, InvalidCursor, InvalidName, NotFound, Unstorable
from tests.support.storage import HOSTILE


def test_a_dataset_comes_back_as_it_was_registered(control):
    columns = {"age": {"cuts": [1.5, 2.5]}, "né": {"kind": "drop"}}
    registered = register_dataset(control, Dataset("adult", ("a.parquet", "b/*.parquet"), "income", columns))
    assert get_dataset(control, "adult") == registered
    assert registered.created_at.utcoffset().total_seconds() == 0
    described = set_dataset_schema(control, "adult", '{"attributes": []}', [{"path": "a.parquet", "size": 2**40}])
    assert described == get_dataset(control, "adult")
    assert described.files == ({"path": "a.parquet", "size": 2**40},)
    assert delete_dataset(control, "adult") == described
    with pytest.raises(NotFound, match="There is no dataset 'adult'"):
        get_dataset(control, "adult")


def test_a_repeated_registration_changes_nothing_and_another_definition_conflicts(control):
    before = control_generation(control)
    first = register_dataset(control, Dataset("d", ("a",), "y", {"x": {"order": ("a", "b")}}))
    assert register_dataset(control, Dataset("d", ("a",), "y", {"x": {"order": ("a", "b")}})) == first
    with pytest.raises(
        Conflict,
        match=r"Dataset 'd' is already registered with other uris, target or columns. Delete it first, or use a new name",
    ):
        register_dataset(control, Dataset("d", ("b",), "y"))
    assert get_dataset(control, "d") == first
    assert control_generation(control) == before, "what is served does not change"


def test_hostile_names_cannot_be_registered_and_are_not_found(control):
    register_dataset(control, Dataset("d", ("a",)))

    def set_schema(control, name):
        set_dataset_schema(control, name, "{}", [])

    for name in HOSTILE:
        with pytest.raises(InvalidName, match="is not a valid name for a dataset"):
            register_dataset(control, Dataset(name, ("a",)))
        for use in (get_dataset, delete_dataset, set_schema):
            with pytest.raises(NotFound, match="There is no"):
                use(control, name)
    assert [dataset.name for dataset in list_datasets(control).items] == ["d"]


def test_what_json_does_not_have_is_refused_whole(control):
    with pytest.raises(Unstorable, match="not JSON compliant"):
        register_dataset(control, Dataset("d", ("a",), columns={"x": {"cuts": [float("nan")]}}))
    with pytest.raises(NotFound, match="There is no"):
        get_dataset(control, "d")


def test_pages_hold_every_dataset_once_also_while_others_come_and_go(control):
    for i in range(7):
        register_dataset(control, Dataset(f"d{i}", ("a",)))
    first = list_datasets(control, limit=3)
    delete_dataset(control, "d0")
    register_dataset(control, Dataset("a", ("a",)))
    second = list_datasets(control, limit=3, cursor=first.next_cursor)
    third = list_datasets(control, limit=3, cursor=second.next_cursor)
    assert [dataset.name for page in (first, second, third) for dataset in page.items] == [f"d{i}" for i in range(7)]
    assert third.next_cursor is None


def test_a_cursor_of_another_list_is_refused(control):
    for cursor in ("", "x", "WzFd", "W10", "é", "bnVsbA", "WyJcdWQ4MDAiXQ", "WyJhJyBPUiAxPTEiXQ"):
        with pytest.raises(
            InvalidCursor, match=r"does not belong to this list. Pass next_cursor of the previous page unchanged"
        ):
            list_datasets(control, cursor=cursor)
