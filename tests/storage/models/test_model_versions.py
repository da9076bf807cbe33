"""The registry: versions never change, and one comes in with its files and its aliases, or leaves nothing behind."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from storage.control.control import control_generation, open_control
from storage.control.leases import end_lease, take_lease
from storage.errors import Conflict, CorruptFile, InvalidName, LeaseLost, NotFound, Unstorable, Unwritable
from storage.models import model_file, model_versions
from storage.models.aliases import alias_history, delete_alias, roll_back, set_alias, versions_by_alias
from storage.models.model_file import write_model
from storage.models.model_versions import (
    ModelVersion,
    abandoned_version_files,
    add_version,
    default_version_created_at,
    find_job_model_version,
    get_version,
    list_model_versions,
    list_models,
    register_model_version,
    reserve_version,
    store_version_tag,
    version_publishing_lock,
)
from storage.models.removal import delete_model, delete_model_version, delete_unretained_versions
from tests.storage.conftest import new_version
from tests.support.storage import HOSTILE


def test_a_version_comes_back_as_it_was_added_and_a_metric_that_is_not_finite_is_not_defined(control):
    metrics = {"log_loss": float("inf"), "ece": float("nan"), "brier": 0.5}
    version = new_version(control, n_rows=2**40, tags={"team": "risk"}, metrics=metrics)
    assert get_version(control, "adult", "1") == get_version(control, "adult", 1) == version
    assert (version.n_rows, version.metrics) == (2**40, {"log_loss": None, "ece": None, "brier": 0.5})
    assert version.duckdb_path == control.root / "models/adult/1-00000000.duckdb"
    with pytest.raises(Unstorable, match="finite numbers"):
        new_version(control, parameters={"m": float("nan")})


def test_the_same_job_registers_one_version_however_often_it_is_repeated(control):
    first = new_version(control, job_id="job-1")
    before = control_generation(control)
    assert new_version(control, job_id="job-1") == first
    assert control_generation(control) == before
    assert new_version(control, job_id="job-2").version == 3


def test_a_version_never_changes(control):
    version = new_version(control, job_id="job-1")
    with pytest.raises(
        Conflict, match=r"'adult@1' is already registered, and versions never change. Reserve a new number"
    ):
        add_version(control, replace(version, n_rows=1, job_id="job-2"))
    with pytest.raises(Conflict, match="'adult@2' has a number that was not reserved"):
        add_version(control, replace(version, version=2, job_id="job-2"))
    assert get_version(control, "adult") == version


def test_a_reference_is_a_number_an_alias_or_the_default(control):
    for _ in range(3):
        new_version(control)
    assert get_version(control, "adult").version == 3
    set_alias(control, "adult", "champion", 1)
    set_alias(control, "adult", "challenger", 2)
    found = {ref: get_version(control, "adult", ref).version for ref in (None, "latest", "challenger", "2", 3)}
    assert found == {None: 1, "latest": 3, "challenger": 2, "2": 2, 3: 3}


def test_a_reference_to_nothing_is_not_found(control):
    new_version(control)
    for ref in ("4", "absent", "-1", "1.0", "²", "9" * 30, *HOSTILE):
        with pytest.raises(NotFound) as raised:
            get_version(control, "adult", ref)
        assert raised.value.kind == "model version"


def test_a_model_that_is_not_there_is_not_found(control):
    new_version(control)

    def prune(control, name):
        delete_unretained_versions(control, name, 1)

    for name in ("absent", *HOSTILE):
        for use in (get_version, list_model_versions, prune):
            with pytest.raises(NotFound) as raised:
                use(control, name)
            assert raised.value.kind == "model"
        assert versions_by_alias(control, name) == {}
        with pytest.raises(NotFound, match="There is no"):
            roll_back(control, name, "champion")


def test_hostile_names_are_refused(control):
    new_version(control)
    for name in HOSTILE:
        for use in (reserve_version, lambda control, name: set_alias(control, "adult", name, 1)):
            with pytest.raises(InvalidName, match="is not a valid name for"):
                use(control, name)
    for alias in ("7", "latest", "versions"):
        with pytest.raises(InvalidName, match="digits are version numbers"):
            set_alias(control, "adult", alias, 1)


def test_an_alias_points_at_what_exists(control):
    new_version(control)
    for version in (2, 0, 2**31, 2**63):
        for use in (partial(set_alias, control, "adult", "champion"), partial(delete_model_version, control, "adult")):
            with pytest.raises(NotFound, match=f"There is no model version 'adult@{version}'"):
                use(version)
    set_alias(control, "adult", "champion", 1)
    with pytest.raises(Conflict, match=r"is in use as 'champion'\. Move or delete the alias first"):
        delete_model_version(control, "adult", 1)
    delete_alias(control, "adult", "champion")
    with pytest.raises(NotFound, match="There is no alias 'adult@champion'"):
        delete_alias(control, "adult", "champion")
    assert delete_model_version(control, "adult", 1).duckdb_path.name == "1-00000000.duckdb"
    assert list_models(control).items == ()


def test_every_rollback_goes_back_one_further(control):
    for version in (1, 2, 3, 4):
        new_version(control)
        set_alias(control, "adult", "champion", version, f"promoted {version}")
    delete_model_version(control, "adult", 2)
    assert roll_back(control, "adult", "champion") == 3
    assert roll_back(control, "adult", "champion", "worse in production") == 1  # 2 is deleted
    with pytest.raises(Conflict, match=r"has no previous version. Point it at a version instead"):
        roll_back(control, "adult", "champion")
    set_alias(control, "adult", "champion", 4)
    assert roll_back(control, "adult", "champion") == 1
    assert [move.version for move in alias_history(control, "adult").items] == [1, 4, 1, 3, 4, 3, 2, 1]
    assert alias_history(control, "adult").items[2].reason == "worse in production"


def test_the_generation_grows_when_what_is_served_may_change(control):
    for step, grows in (
        (lambda: new_version(control), True),
        (lambda: set_alias(control, "adult", "champion", 1), True),
        (lambda: set_alias(control, "adult", "champion", 1), False),
        (lambda: new_version(control), True),
        (lambda: delete_model_version(control, "adult", 2), True),
        (lambda: delete_alias(control, "adult", "champion"), True),
    ):
        before = control_generation(control)
        step()
        assert (control_generation(control) > before) == grows


def test_models_are_listed_with_what_they_have(control):
    for name in ("b", "a", "a", "c"):
        new_version(control, name)
    reserve_version(control, "nothing-yet")
    set_alias(control, "a", "champion", 1)
    page = list_models(control, limit=2)
    listed = [(model.name, model.latest_version, model.n_versions, model.aliases) for model in page.items]
    assert listed == [("a", 2, 2, {"champion": 1}), ("b", 1, 1, {})]
    assert [model.name for model in list_models(control, cursor=page.next_cursor).items] == ["c"]
    first = list_model_versions(control, "a", limit=1)
    second = list_model_versions(control, "a", limit=1, cursor=first.next_cursor)
    assert [version.version for page in (first, second) for version in page.items] == [2, 1], "newest first"
    assert second.next_cursor is None


def test_tags_are_all_that_changes_also_at_the_same_time(control):
    version = new_version(control, tags={"team": "sky"})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: store_version_tag(control, "adult", 1, f"tag-{n}", str(n)), range(4)))
    changed = store_version_tag(control, "adult", 1, "team", None)
    assert changed == replace(version, tags={f"tag-{n}": str(n) for n in range(4)})
    for number, tag, missing in ((1, "team", "no tag 'team'"), (2, "tag-1", "There is no")):
        with pytest.raises(NotFound, match=missing):
            store_version_tag(control, "adult", number, tag, None)


def test_a_moved_workspace_still_finds_its_files(layout):
    with open_control(layout.control_url) as opened:
        new_version(opened)
    moved = layout.root.rename(layout.root.with_name("moved"))
    with open_control(f"sqlite:///{moved}/control.sqlite") as opened:
        assert get_version(opened, "adult", 1).arrow_path == moved / "models/adult/1-00000000.arrow"


@pytest.mark.parametrize("path", ["/elsewhere/1.duckdb", "../elsewhere/1.duckdb", "models/../../1.duckdb"])
def test_a_path_that_leads_out_of_the_workspace_is_read_nowhere_and_nothing_is_deleted_by_it(control, path):
    new_version(control)
    with control.writing() as connection:
        connection.execute(sa.text("UPDATE model_versions SET duckdb_path = :path"), {"path": path})
    for use, *version in ((get_version, 1), (list_model_versions,), (delete_model_version, 1), (delete_model,)):
        with pytest.raises(CorruptFile, match="outside of the workspace"):
            use(control, "adult", *version)


def test_served_since_tells_the_version_of_the_bare_name(control):
    first, second = new_version(control), new_version(control)
    assert default_version_created_at(control) == {"adult": second.created_at}
    set_alias(control, "adult", "champion", 1)
    assert default_version_created_at(control) == {"adult": first.created_at}


NO_SPACE = Unwritable("control.sqlite", "No space left on device.")


@pytest.fixture
def registry(layout):
    with open_control(layout.control_url) as registry:
        yield registry


def files_of(layout):
    return sorted(path.name for path in layout.models.glob("*/[!.]*"))


def written(registry, layout, job_id="job-1"):
    number = reserve_version(registry, "m")
    tables = {"t": pa.table({"a": [job_id]})}
    files = write_model(layout.models, "m", number, {"kind": "any"}, {"x": np.arange(3)}, tables)
    paths = {"sha256": files.sha256, "duckdb_path": files.duckdb_path, "arrow_path": files.arrow_path}
    return ModelVersion("m", number, "nb", {}, None, {}, job_id, (), 3, **paths)


def test_a_version_and_its_aliases_come_together(registry, layout):
    version = register_model_version(registry, written(registry, layout), aliases=["champion"], reason="why")
    assert get_version(registry, "m") == version and versions_by_alias(registry, "m") == {"champion": 1}
    assert [find_job_model_version(registry, "m", job) for job in ("job-1", "job-2")] == [version, None]
    assert len(files_of(layout)) == 3


def test_a_registration_that_is_refused_leaves_no_file_no_alias_and_no_row(registry, layout, monkeypatch):
    def refuse(*_, **__):
        raise NO_SPACE

    for how, says in (
        ({"aliases": ["champion", "7"]}, "is not a valid name for an alias"),
        ({"check": refuse}, "No space"),
        ({}, "No space"),
    ):
        if not how:
            monkeypatch.setattr(model_versions, "add_version", refuse)
        with pytest.raises((ValueError, Unwritable), match=says):
            register_model_version(registry, written(registry, layout), **how)
        assert versions_by_alias(registry, "m") == {} and files_of(layout) == []
        with pytest.raises(NotFound, match="no model"):
            get_version(registry, "m")


def test_a_registration_whose_answer_is_lost_has_succeeded(registry, layout, monkeypatch):
    def add_and_fail(*given, **named):
        add_version(*given, **named)
        raise NO_SPACE

    monkeypatch.setattr(model_versions, "add_version", add_and_fail)
    version = register_model_version(registry, written(registry, layout), aliases=["champion"])
    assert get_version(registry, "m", "champion") == version
    assert len(files_of(layout)) == 3


def test_files_of_which_nobody_can_say_whether_they_are_registered_stay(registry, layout, monkeypatch):
    version = written(registry, layout)

    def be_away(*_, **__):
        registry.engine.dispose()
        monkeypatch.setattr(model_versions, "_registered", be_away)
        raise NO_SPACE

    monkeypatch.setattr(model_versions, "add_version", be_away)
    with pytest.raises(Unwritable, match="No space"):
        register_model_version(registry, version)
    assert len(files_of(layout)) == 3
    assert len(abandoned_version_files(registry, layout, is_removing=True)) == 3 and files_of(layout) == []


def test_a_worker_that_was_taken_for_dead_removes_nothing(registry, layout):
    """The worker that has taken over the job may have registered these very files."""
    version = written(registry, layout)
    with open_control(layout.control_url) as late:
        take_lease(late, "w", "here", 0, 30)
        end_lease(registry, "w")
        with pytest.raises(LeaseLost, match="w did not renew"):
            register_model_version(late, version)
    assert len(files_of(layout)) == 3 and register_model_version(registry, version).version == 1


def test_a_second_start_of_a_job_keeps_the_version_of_the_first(registry, layout):
    first = register_model_version(registry, written(registry, layout))
    again = written(registry, layout)  # with another number: the receipt of the first was lost
    assert register_model_version(registry, again) == first
    assert {name.partition("-")[0] for name in files_of(layout)} == {"1"}


@pytest.mark.parametrize("step", ["publish_draft_file", "write_compiled", "write_manifest"])
def test_files_that_are_refused_half_way_leave_none(registry, layout, monkeypatch, step):
    def refuse(*given, **named):
        getattr(model_file, f"_{step}")(*given, **named)  # at the worst moment: done, and then an error
        raise NO_SPACE

    monkeypatch.setattr(model_file, f"_{step}", getattr(model_file, step), raising=False)
    monkeypatch.setattr(model_file, step, refuse)
    with pytest.raises(Unwritable, match="No space"):
        written(registry, layout)
    assert files_of(layout) == []


def test_only_what_nobody_publishes_is_abandoned(registry, layout):
    version = register_model_version(registry, written(registry, layout))
    lost = written(registry, layout, "job-2")
    foreign = lost.duckdb_path.with_name("notes.txt")
    foreign.write_text("mine")
    with version_publishing_lock(layout.model_directory("m")):
        assert abandoned_version_files(registry, layout, is_removing=True) == ()
    found = abandoned_version_files(registry, layout, is_removing=True)
    assert {path.stem for path in found} == {lost.duckdb_path.stem, "notes"} and foreign.exists()
    assert {Path(name).stem for name in files_of(layout)} == {version.duckdb_path.stem, "notes"}
