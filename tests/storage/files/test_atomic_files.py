"""Publishing: a file, or a folder, is there whole or not at all, whatever fails, whoever is killed."""

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from storage.errors import Conflict, CorruptFile, InvalidName, Unwritable
from storage.files import atomic_files
from storage.files.atomic_files import (
    delete_abandoned_drafts,
    draft_file_path,
    draft_path_beside,
    publish_draft_folder,
    read_manifest,
    sha256_of_file,
    verify_file_sha256,
    visible_files_below,
    write_file_atomically,
    write_manifest,
)
from storage.files.workspace_layout import Layout, Temporary

ROOT = Path(__file__).parents[3]


def test_a_published_file_is_whole_and_read_only(tmp_path):
    with write_file_atomically(tmp_path / "new" / "a.txt") as draft:
        draft.write_text("whole")
        assert not (tmp_path / "new" / "a.txt").exists()
    assert (tmp_path / "new" / "a.txt").read_text() == "whole"
    assert (tmp_path / "new" / "a.txt").stat().st_mode & 0o777 == 0o444
    with pytest.raises(ZeroDivisionError), write_file_atomically(tmp_path / "new" / "b.txt") as draft:
        draft.write_text("half")
        1 / 0  # noqa: B018
    assert os.listdir(tmp_path / "new") == ["a.txt"], "nothing is left when the writer raises"


def test_a_name_is_used_once_unless_it_is_to_be_replaced(tmp_path):
    path = tmp_path / "a.txt"
    with write_file_atomically(path) as draft:
        draft.write_text("first")
    with pytest.raises(Conflict, match="published files never change"), write_file_atomically(path) as draft:
        pytest.fail("the name is taken")
    with write_file_atomically(path, replace=True) as draft:
        draft.write_text("second")
    assert path.read_text() == "second"


STEPS = [(os, "fchmod"), (os, "fsync"), (Path, "mkdir"), (Path, "rename"), (atomic_files, "fsync_directory")]


@pytest.mark.parametrize(("place", "step"), STEPS)
def test_a_step_that_fails_leaves_no_file_or_all_of_it(tmp_path, monkeypatch, place, step):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.txt"
    monkeypatch.setattr(place, step, refuse)
    with pytest.raises(Unwritable, match=r"No space left on device\. Free"), write_file_atomically(path) as draft:
        draft.write_text("whole")
    monkeypatch.undo()
    expected = {"a.txt": "whole"} if step == "fsync_directory" else {}
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == expected


def test_a_full_disk_within_the_writer_is_named(tmp_path):
    with pytest.raises(Unwritable, match="No space left on device"), write_file_atomically(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError, match="/absent"), write_file_atomically(tmp_path / "a.txt"):
        Path("/absent").read_bytes()  # not the disk's fault


def test_a_workspace_in_the_place_of_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    for place in ("file/workspace", "file"):
        with pytest.raises(Unwritable, match="cannot be written"):
            Layout(tmp_path / place).create()


WRITER = """
import sys, time
from storage.files.atomic_files import write_file_atomically
with write_file_atomically(sys.argv[1]) as draft:
    draft.write_text("half")
    print("writing", flush=True)
    time.sleep(3600)
"""


def test_a_sweep_takes_what_a_killed_writer_left_and_nothing_else(tmp_path):
    layout = Layout(tmp_path).create()
    command = [sys.executable, "-c", WRITER]
    killed, alive = (
        subprocess.Popen([*command, str(layout.models / name / "1.txt")], cwd=ROOT, stdout=subprocess.PIPE)
        for name in ("killed", "alive")
    )
    with draft_file_path(layout.models / "ours", "x") as ours:
        ours.touch()
        for writer in (killed, alive):
            assert writer.stdout.readline() == b"writing\n"
        killed.kill()
        killed.wait()
        (layout.models / "killed" / "0.txt").write_text("published before")
        layout.create()  # as another process of ours does when it starts
        assert os.listdir(layout.models / "killed") == ["0.txt"]
        assert len(list((layout.models / "alive").glob(".*/1.txt"))) == 1
        assert ours.exists()
    alive.kill()
    alive.wait()
    assert len(delete_abandoned_drafts(layout.models)) == 1
    assert list(layout.models.rglob("*.partial")) == []


def test_a_temporary_folder_is_its_process_s_and_goes_with_it(tmp_path):
    script = (
        "import sys; from pathlib import Path; from storage.files.workspace_layout import Temporary\n"
        "kept = Temporary(Path(sys.argv[1])); (kept.path / 'cells').touch()\n"
        "print(kept.path, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        path = Path(process.stdout.readline().decode().strip())
        assert delete_abandoned_drafts(tmp_path) == () and (path / "cells").exists()
        process.kill()
    assert delete_abandoned_drafts(tmp_path) == (path.parent,) and not path.exists()
    with Temporary(tmp_path) as own:
        assert own.path.is_dir()
    assert not list(tmp_path.iterdir())


SWEEPER = """
import sys
from pathlib import Path
from storage.files.atomic_files import delete_abandoned_drafts
print("sweeping", flush=True)
while not Path(sys.argv[1], "stop").exists():
    delete_abandoned_drafts(Path(sys.argv[1]))
"""


def test_a_restless_sweep_never_disturbs_a_writer(tmp_path):
    sweeper = subprocess.Popen([sys.executable, "-c", SWEEPER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    sweeper.stdout.readline()
    end = time.monotonic() + 0.7
    n_published = 0
    while time.monotonic() < end:
        with write_file_atomically(tmp_path / f"{n_published}.txt") as draft:
            draft.write_text("whole")
        n_published += 1
    (tmp_path / "stop").touch()
    assert sweeper.wait(120) == 0
    assert all((tmp_path / f"{i}.txt").read_text() == "whole" for i in range(n_published))


def test_a_manifest_is_what_sha256sum_reads(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    write_manifest(tmp_path / "m.sha256", {"a": sha256_of_file(tmp_path / "a")})
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert read_manifest(tmp_path / "m.sha256") == {"a": sha256}
    assert subprocess.run(["sha256sum", "--check", "m.sha256"], cwd=tmp_path, capture_output=True).returncode == 0


def test_a_changed_or_missing_file_is_damaged(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    sha256 = sha256_of_file(tmp_path / "a")
    verify_file_sha256(tmp_path / "a", sha256)
    (tmp_path / "a").write_bytes(b"abd")
    with pytest.raises(CorruptFile, match="its SHA-256 is"):
        verify_file_sha256(tmp_path / "a", sha256)
    with pytest.raises(CorruptFile, match="No such file"):
        verify_file_sha256(tmp_path / "b", sha256)


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"abc a\n", b"abc  a\n"])
def test_a_bad_manifest_is_damaged_or_lists_nothing(tmp_path, content):
    path = tmp_path / "m.sha256"
    if content == b"":
        path.touch()
        assert read_manifest(path) == {}
        return
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorruptFile, match="manifest"):
        read_manifest(path)


@pytest.mark.parametrize("name", ["..", "a/b", "", "/etc", "a\x00"])
def test_no_name_leads_out_of_the_workspace(tmp_path, name):
    layout = Layout(tmp_path)
    for folder in (layout.model_directory, layout.dataset_directory, layout.scratch_directory):
        with pytest.raises(InvalidName, match="is not a valid name for"):
            folder(name)
    assert layout.dataset_directory("adult") == tmp_path / "datasets" / "adult"


def test_what_vanishes_while_it_is_listed_is_passed_over(tmp_path):
    for place in ("a/1", "a/.hidden", ".b.partial/1", "c/d/1", "e/1"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    found = visible_files_below(tmp_path)
    assert next(found) == tmp_path / "a" / "1"
    shutil.rmtree(tmp_path / "c")
    assert list(found) == [tmp_path / "e" / "1"]
    assert not list(visible_files_below(tmp_path / "nowhere"))


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

    with draft_path_beside(target) as draft:
        made = make_tree(draft)
        monkeypatch.setattr(os, "fsync", note)
        publish_draft_folder(draft, target)
    inside = {made, *(made / name for name in ("control", "models", "models/m", "models/m/1"))}
    assert {path for path, is_there in synced if not is_there} == inside
    assert (tmp_path, True) in synced
    assert (target / "models" / "m" / "1").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_an_empty_folder_is_replaced_and_a_full_one_is_not(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    with draft_path_beside(target) as draft:
        publish_draft_folder(make_tree(draft), target)
    with pytest.raises((OSError, Unwritable), match="not empty"), draft_path_beside(target) as draft:
        publish_draft_folder(make_tree(draft), target)
    assert (target / "control").read_text() == "rows"


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path):
    with draft_path_beside(tmp_path / "living") as living:
        living.write_text("at work")
        left = tmp_path / ".0123456789abcdef.partial"
        left.mkdir()
        (left / "half").write_text("x")
        others = [tmp_path / ".mine.partial", tmp_path / ".0123456789abcdef", tmp_path / "0123456789abcdef.partial"]
        for other in others:
            other.mkdir()
        with draft_path_beside(tmp_path / "next"):
            assert not left.exists()
        assert living.read_text() == "at work" and all(other.exists() for other in others)


def test_a_disk_that_refuses_leaves_no_name(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(atomic_files, "fsync_directory", refuse)
    with pytest.raises(Unwritable, match="Input/output error"), draft_path_beside(tmp_path / "target") as draft:
        publish_draft_folder(make_tree(draft), tmp_path / "target")
    assert list(tmp_path.iterdir()) == [] and atomic_files.delete_abandoned_drafts(tmp_path) == ()


def test_a_file_is_locked_while_somebody_holds_its_lock(tmp_path):
    path = tmp_path / "x"
    with atomic_files.exclusive_file_lock(path):
        assert atomic_files.is_file_locked(tmp_path / ".x.lock")
    assert not atomic_files.is_file_locked(tmp_path / ".x.lock")
    assert not atomic_files.is_file_locked(tmp_path / "absent")
