"""A link that somebody swaps between the check of a path and its opening leads nowhere: what is open decides."""

import os
import pickle

import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from learners.errors import SourceError
from learners.passes.sources import guarded_files
from learners.passes.sources.guarded_files import GuardedFiles
from service.product.datasets.data_sources import open_data_source
from service.requests.problems import OutsideRoots
from tests.security.test_paths import OUTSIDE, SECRET, TABLE, places

__all__ = ["places"]

FORMATS_OPENED = {
    "parquet": pq.write_table,
    "csv": pacsv.write_csv,
    "feather": feather.write_feather,
    "orc": orc.write_table,
}


def swapped(path, target):
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("when", ["its schema", "a pass"])
@pytest.mark.parametrize("part", ["file", "folder"])
@pytest.mark.parametrize("back", [False, True], ids=["stays", "swapped back"])
@pytest.mark.parametrize("kind", FORMATS_OPENED)
def test_a_link_that_is_swapped_right_before_a_file_is_opened_leads_nowhere(
    places, tmp_path_factory, monkeypatch, kind, back, part, when
):
    """Every opening, that of the schema and those of the passes, is by somebody who swaps for that moment alone."""
    workspace, root, outside = places
    folder = root / f"swapped-{tmp_path_factory.mktemp('n').name}"
    folder.mkdir()
    path, away = folder / f"z.{kind}", folder.with_name(f"{folder.name}-away")
    victim = path if part == "file" else folder
    FORMATS_OPENED[kind](TABLE, path)
    opens, n_swaps = os.open, []

    def hostile_open(name, *more, **options):
        if str(name) != str(path):
            return opens(name, *more, **options)
        n_swaps.append(1)
        if not victim.is_symlink():
            victim.rename(away)
            victim.symlink_to(outside / path.name if part == "file" else outside)
        try:
            return opens(name, *more, **options)
        finally:
            if back:
                victim.unlink()
                away.rename(victim)

    source = open_data_source(workspace, [str(path)]) if when == "a pass" else None
    monkeypatch.setattr(os, "open", hostile_open)
    with pytest.raises(OutsideRoots, match=OUTSIDE) as refused:
        open_data_source(workspace, [str(path)]) if source is None else list(source.batches())
    assert SECRET not in str(refused.value) and n_swaps


@pytest.mark.parametrize("shows", guarded_files.OPEN_FILES)
def test_a_system_that_does_not_tell_where_an_open_file_is_compares_what_is_there(tmp_path, monkeypatch, shows):
    monkeypatch.setattr(guarded_files, "OPEN_FILES", guarded_files.OPEN_FILES if "proc" in shows else ("/gone", shows))
    asked: list[str] = []
    here, own, other = GuardedFiles(asked.append), tmp_path / "own", tmp_path / "other"
    own.write_text("own")
    other.write_text("other")
    with here.open_input_file(str(own)) as file:
        assert file.read() == b"own" and asked == [str(own)]
    opens = os.open

    def hostile_open(name, *more):
        swapped(own, other)
        return opens(name, *more)

    monkeypatch.setattr(os, "open", hostile_open)
    with here.open_input_file(str(own)):
        assert asked == [str(own), str(other)], "the path of what is open"
    monkeypatch.setattr(os, "open", lambda name, *more: (opens(other, *more), swapped(own, tmp_path / "third"))[0])
    (tmp_path / "third").write_text("third")
    if "proc" in shows:
        here.open_input_file(str(own)).close()
        assert asked[2:] == [str(other)]
    else:
        with pytest.raises(SourceError, match=r"was replaced while it was being opened. Run the command again"):
            here.open_input_file(str(own))


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match=r"is not a regular file. Replace it by one"):
        GuardedFiles(None).open_input_file(str(tmp_path / "pipe"))


def test_a_source_that_is_sent_away_is_checked_where_it_was_opened(places):
    workspace, root, _ = places
    source = open_data_source(workspace, [str(root / "good")])
    sent = pickle.loads(pickle.dumps(source.carved([0])))
    assert next(sent.batches()).equals(next(source.batches()))
    assert source._filesystem.handler.check is not None and sent._filesystem.handler.check is None
