"""What a workspace keeps of data between trainings: statistics, the schema of the last one, rules of forgotten rows."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from learners.schema import Kept, Schema
from service.jobs.checkpoints import ForgivingStore, JobCheckpoints
from service.jobs.steps import Run
from service.requests.json_values import JSONMapping
from service.requests.requests import TrainRequest
from service.workspace import Workspace
from storage.datasets.forgotten import Forgotten
from storage.errors import CorruptFile
from storage.files.checksums import checked_document, with_sum
from storage.files.workspace_layout import publish

DATA = "data"  # beside the versions of a model
RULES, STATISTICS, SCHEMAS = "forgotten.json", "statistics", "schemas"
CONTENTS, COLUMNS = "contents.json", "columns.json"  # of files that were verified, and of the columns' order
SNAPSHOT = "snapshot.json"  # of a lake table, that the last training counted


class Ledger:
    """The statistics of one data set and what belongs to them.

    Rules and schemas are in `directory`, whether or not statistics are kept; the checkpoints are of the job that trains.
    """

    def __init__(
        self, directory: Path, store: ForgivingStore | None, checkpoints: JobCheckpoints | None = None
    ) -> None:
        self.directory, self.store, self.checkpoints = directory, store, checkpoints

    @property
    def forgotten(self) -> Forgotten:
        """The rules of rows that must not be learned from."""
        return Forgotten(self.rules_path)

    @property
    def rules_path(self) -> Path:
        """The file of these rules, whether or not there is one."""
        return self.directory / RULES

    def schema(self, target: str | None, overrides: JSONMapping, cuts_by: Mapping[str, object]) -> Kept | None:
        """That of the last training for this target and columns, by a learner that cuts numbers alike (CorruptFile)."""
        path = self._schema_path(target, overrides, cuts_by)
        if not path.exists():
            return None
        try:
            text = path.read_text()
            document = checked_document(path, text)
            return Kept(Schema.from_json(str(document["schema"]) if isinstance(document.get("schema"), str) else text))
        except CorruptFile as error:
            reason = "the schema of the last training is not what was written. Train once without update."
            raise CorruptFile(path, reason) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"the schema of the last training cannot be read ({error}). Train once without update."
            raise CorruptFile(path, reason) from error

    def keep_schema(
        self, target: str | None, overrides: JSONMapping, cuts_by: Mapping[str, object], schema: Schema
    ) -> None:
        """Remember the schema for the next update."""
        path = self._schema_path(target, overrides, cuts_by)
        text = with_sum({"schema": schema.to_json()})
        if self.store is not None and (not path.exists() or path.read_bytes() != text.encode()):
            with publish(path, replace=True) as draft:
                draft.write_text(text)

    def _schema_path(self, target: str | None, overrides: JSONMapping, cuts_by: Mapping[str, object]) -> Path:
        key = json.dumps([target, overrides, *([cuts_by] if cuts_by else [])], sort_keys=True, default=str)
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        return self.directory / SCHEMAS / f"{name}.json"


def remove_counted(directory: Path) -> None:
    """Remove what a deleted data set or model has of its own: statistics and notes are of its files, and not of its name.

    The rules of forgotten rows stay: most data sets are deleted to be registered again, and those rows shall not come back.
    """
    for name in (STATISTICS, SCHEMAS):
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in (CONTENTS, COLUMNS, SNAPSHOT):
        (directory / name).unlink(missing_ok=True)


def ledger_of(workspace: Workspace, request: TrainRequest, run: Run) -> Ledger:
    """Beside a registered data set, so that models share passes; beside the model if it is trained on files to be
    updated; else in the scratch folder of a job, or nowhere.
    """
    settings = workspace.settings
    scratch = workspace.layout.scratch_directory(run.job_id)
    checkpoints = None if run.is_local else JobCheckpoints(scratch / "passes", settings.checkpoint_s)
    if request.dataset is not None:
        directory = workspace.layout.dataset_directory(request.dataset)
    else:
        directory = workspace.layout.model_directory(request.model) / DATA
    place: Path | None = directory
    if request.dataset is None and not request.update:
        place = None if run.is_local else scratch
    store = None if place is None else ForgivingStore(place / STATISTICS, settings.statistics_bytes)
    return Ledger(directory, store, checkpoints)
