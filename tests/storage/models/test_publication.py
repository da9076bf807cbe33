"""A version comes into the registry with its files and its aliases, or leaves nothing behind."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from storage.control.control import open_control
from storage.control.leases import end_lease, take_lease
from storage.errors import LeaseLost, NotFound, Unwritable
from storage.models import model_file, publication
from storage.models.aliases import aliases
from storage.models.model_file import write_model
from storage.models.models import ModelVersion, add_version, get_version, reserve_version
from storage.models.publication import abandoned_files, publishing, register, version_of_job

NO_SPACE = Unwritable("control.sqlite", "No space left on device.")


@pytest.fixture
def control(layout):
    with open_control(layout.control_url) as control:
        yield control


def files_of(layout):
    return sorted(path.name for path in layout.models.glob("*/[!.]*"))


def written(control, layout, job_id="job-1"):
    number = reserve_version(control, "m")
    files = write_model(
        layout.models, "m", number, {"kind": "any"}, {"x": np.arange(3)}, {"t": pa.table({"a": [job_id or ""]})}
    )
    asked = {"learner": "nb", "parameters": {}, "dataset": None, "metrics": {}, "files": (), "n_rows": 3}
    paths = {"sha256": files.sha256, "duckdb_path": files.duckdb_path, "arrow_path": files.arrow_path}
    return ModelVersion("m", number, job_id=job_id, **asked, **paths)


def test_a_version_and_its_aliases_come_together(control, layout):
    version = register(control, written(control, layout), aliases=["champion"], reason="why")
    assert get_version(control, "m") == version and aliases(control, "m") == {"champion": 1}
    assert version_of_job(control, "m", "job-1") == version and version_of_job(control, "m", "job-2") is None
    assert len(files_of(layout)) == 3


def test_a_version_whose_alias_is_refused_is_not_there_at_all(control, layout):
    with pytest.raises(ValueError, match="is not a name for an alias"):
        register(control, written(control, layout), aliases=["champion", "7"])
    with pytest.raises(NotFound, match="no model"):
        get_version(control, "m")
    assert aliases(control, "m") == {} and files_of(layout) == []


def test_a_registration_that_is_refused_leaves_no_file(control, layout, monkeypatch):
    def refuse(*_, **__):
        raise NO_SPACE

    version = written(control, layout)
    with pytest.raises(Unwritable, match="No space"):
        register(control, version, check=refuse)
    assert files_of(layout) == []
    version = written(control, layout)
    monkeypatch.setattr(publication, "add_version", refuse)
    with pytest.raises(Unwritable, match="No space"):
        register(control, version)
    assert files_of(layout) == []


def test_a_registration_whose_answer_is_lost_has_succeeded(control, layout, monkeypatch):
    def add_and_fail(*given, **named):
        add_version(*given, **named)
        raise NO_SPACE

    monkeypatch.setattr(publication, "add_version", add_and_fail)
    version = register(control, written(control, layout), aliases=["champion"])
    assert get_version(control, "m@champion".partition("@")[0], "champion") == version
    assert len(files_of(layout)) == 3


def test_files_of_which_nobody_can_say_whether_they_are_registered_stay(control, layout, monkeypatch):
    version = written(control, layout)

    def be_away(*_, **__):
        control.engine.dispose()
        monkeypatch.setattr(publication, "_registered", be_away)
        raise NO_SPACE

    monkeypatch.setattr(publication, "add_version", be_away)
    with pytest.raises(Unwritable, match="No space"):
        register(control, version)
    assert len(files_of(layout)) == 3
    assert len(abandoned_files(control, layout, is_removing=True)) == 3 and files_of(layout) == []


def test_a_worker_that_was_taken_for_dead_removes_nothing(control, layout):
    """The worker that has taken over the job may have registered these very files."""
    version = written(control, layout)
    with open_control(layout.control_url) as late:
        take_lease(late, "w", "here", 0, 30)
        end_lease(control, "w")
        with pytest.raises(LeaseLost, match="w did not renew"):
            register(late, version)
    assert len(files_of(layout)) == 3 and register(control, version).version == 1


def test_a_second_start_of_a_job_keeps_the_version_of_the_first(control, layout):
    first = register(control, written(control, layout))
    assert register(control, written(control, layout)) == first  # with another number: its receipt was lost
    assert {name.partition("-")[0] for name in files_of(layout)} == {"1"}


@pytest.mark.parametrize("step", ["settle", "write_compiled", "write_manifest"])
def test_files_that_are_refused_half_way_leave_none(control, layout, monkeypatch, step):
    def refuse(*given, **named):
        getattr(model_file, f"_{step}")(*given, **named)  # at the worst moment: done, and then an error
        raise NO_SPACE

    monkeypatch.setattr(model_file, f"_{step}", getattr(model_file, step), raising=False)
    monkeypatch.setattr(model_file, step, refuse)
    with pytest.raises(Unwritable, match="No space"):
        written(control, layout)
    assert files_of(layout) == []


def test_only_what_nobody_publishes_is_abandoned(control, layout):
    version = register(control, written(control, layout))
    lost = written(control, layout, "job-2")
    foreign = lost.duckdb_path.with_name("notes.txt")
    foreign.write_text("mine")
    with publishing(layout.model_directory("m")):
        assert abandoned_files(control, layout, is_removing=True) == ()
    found = abandoned_files(control, layout, is_removing=True)
    assert {path.stem for path in found} == {lost.duckdb_path.stem, "notes"} and foreign.exists()
    assert {Path(name).stem for name in files_of(layout)} == {version.duckdb_path.stem, "notes"}
