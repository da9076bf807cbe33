"""Copies of the control database: whose fault it is if one fails."""

import pytest

from storage.control.control import open_control
from storage.control.copy import copy_control, damages_of_control
from storage.errors import CorruptFile, Unwritable


@pytest.fixture
def control(tmp_path):
    path = tmp_path / "control.sqlite"
    with open_control(f"sqlite:///{path}"):
        pass
    return path


def test_a_copy_is_sound(control, tmp_path):
    copy_control(control, tmp_path / "copy.sqlite")
    assert damages_of_control(tmp_path / "copy.sqlite") == []


def test_a_target_that_cannot_be_written_is_named(control, tmp_path):
    with pytest.raises(Unwritable, match=r"copy\.sqlite cannot be written: unable to open"):
        copy_control(control, tmp_path / "none" / "copy.sqlite")


def test_a_damaged_source_is_named(control, tmp_path):
    control.write_bytes(b"no database" * 1000)
    with pytest.raises(CorruptFile, match=r"control\.sqlite is damaged"):
        copy_control(control, tmp_path / "copy.sqlite")
