"""Files that users uploaded, in backups and under the doctor's eyes."""

import shutil
from pathlib import Path

from service import product
from service.operations import backup, doctor
from service.requests.requests import DatasetRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.service import forks


def uploads(settings):
    return [finding for finding in doctor.run_doctor_checks(settings) if finding.check == "uploads"]


def test_a_backup_holds_what_was_uploaded_into_the_workspace(tmp_path):
    settings, copy, restored = Settings(workspace=tmp_path / "w"), tmp_path / "copy.tar", tmp_path / "restored"
    with Workspace(settings) as workspace:
        (uri,) = product.register_example_dataset(workspace).uris
        backup.back_up_workspace(workspace, copy)
    (found,) = uploads(settings)
    assert found.state == "ok" and "included in backups" in found.detail
    backup.restore_workspace(copy, restored)
    again = restored / Path(uri).relative_to(settings.workspace)
    assert again.read_bytes() == Path(uri).read_bytes()
    shutil.rmtree(settings.workspace)
    lost = uploads(Settings(workspace=restored))[-1]
    assert lost.state == "warning" and uri in lost.detail and str(restored / "uploads") in lost.remedy
    backup.restore_workspace(copy, settings.workspace)
    assert [finding.state for finding in uploads(settings)] == ["ok"]


def test_what_is_no_uploaded_file_is_not_missed(tmp_path):
    """A glob or an address in a folder that is called as that of an upload would be."""
    settings, folder = Settings(workspace=tmp_path / "w"), tmp_path / "uploads" / "days"
    folder.mkdir(parents=True)
    with Workspace(settings) as workspace:
        shutil.copy(product.register_example_dataset(workspace).uris[0], folder)
        product.register_dataset(workspace, DatasetRequest(name="days", uris=[str(folder / "*")]))
    assert [finding.state for finding in uploads(settings)] == ["ok"]


def test_a_backup_says_that_files_in_a_data_root_are_not_in_it(tmp_path):
    settings = Settings(workspace=tmp_path / "w", data_roots=[str(tmp_path / "data")])
    with Workspace(settings) as workspace:
        product.register_example_dataset(workspace)
    (found,) = uploads(settings)
    assert found.state == "ok" and "back up that folder separately" in found.detail
    assert str(tmp_path / "data" / "uploads") in found.detail
    said = forks.run(["backup", str(tmp_path / "copy")], settings.environment())
    assert "Uploaded files are not in it" in said.stdout and said.returncode == 0
    assert not (tmp_path / "copy" / "uploads").exists()
