"""Folders that appear at once: everything in them is on the disk before their name is."""

import os
from pathlib import Path

import pytest

from storage.errors import Unwritable
from storage.files import atomic_folders, workspace_layout
from storage.files.atomic_folders import drafting_beside, settle_tree


def make_tree(folder):
    (folder / "models" / "m").mkdir(parents=True)
    (folder / "models" / "m" / "1").write_text("one")
    (folder / "control").write_text("rows")
    return folder


def test_everything_is_synced_before_the_name_appears(tmp_path, monkeypatch):
    target, synced = tmp_path / "target", []
    fsync = os.fsync

    def note(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((path, target.exists()))
        fsync(descriptor)

    with drafting_beside(target) as draft:
        made = make_tree(draft)
        monkeypatch.setattr(os, "fsync", note)
        settle_tree(draft, target)
    inside = {
        made,
        *made.rglob("*"),
        made / "control",
        made / "models",
        made / "models" / "m",
        made / "models" / "m" / "1",
    }
    assert {path for path, is_there in synced if not is_there} == inside
    assert (tmp_path, True) in synced
    assert (target / "models" / "m" / "1").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_an_empty_folder_is_replaced_and_a_full_one_is_not(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    with drafting_beside(target) as draft:
        settle_tree(make_tree(draft), target)
    with pytest.raises((OSError, Unwritable), match="not empty"), drafting_beside(target) as draft:
        settle_tree(make_tree(draft), target)
    assert (target / "control").read_text() == "rows"


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path):
    with drafting_beside(tmp_path / "living") as living:
        living.write_text("at work")
        left = tmp_path / ".0123456789abcdef.partial"
        left.mkdir()
        (left / "half").write_text("x")
        others = [tmp_path / ".mine.partial", tmp_path / ".0123456789abcdef", tmp_path / "0123456789abcdef.partial"]
        for other in others:
            other.mkdir()
        with drafting_beside(tmp_path / "next"):
            assert not left.exists()
        assert living.read_text() == "at work" and all(other.exists() for other in others)


def test_a_disk_that_refuses_leaves_no_name(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(atomic_folders, "fsync_directory", refuse)
    with pytest.raises(Unwritable, match="Input/output error"), drafting_beside(tmp_path / "target") as draft:
        settle_tree(make_tree(draft), tmp_path / "target")
    assert list(tmp_path.iterdir()) == [] and workspace_layout.sweep(tmp_path) == ()
