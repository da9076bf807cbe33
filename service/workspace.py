"""Every verb of the product, once: REST, the command line and the worker call it."""

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from learners.errors import UnknownColumn
from learners.passes.source import Source
from learners.query import Query
from service import foresight, promotion, queries, roots, rows, scoring, steps
from service.jobs.limits import check_limits, limits_of
from service.jobs.logs import log_path
from service.jobs.notes import NOTES, Notes
from service.jobs.steps import Kinds, run_now
from service.jobs.watch import watched_here
from service.ledger import LOCAL, RULES, remove_counted
from service.predictor import Served, find_version, map_version
from service.problems import InvalidRequest
from service.registry import Registry
from service.reports import Report
from service.requests import (
    AnyRequest,
    DatasetRequest,
    EvaluateRequest,
    ForgetRequest,
    RefreshRequest,
    SchemaRequest,
    TrainRequest,
)
from service.schedules import Schedules
from service.settings import Settings
from storage import datasets, keys, models
from storage.control import Control, open_control
from storage.datasets import Dataset
from storage.errors import NotFound
from storage.files import Layout, Temporary, Witness
from storage.forgotten import Forgotten
from storage.keys import ApiKey, Role
from storage.models import ModelVersion, RegisteredModel
from storage.paging import Page

if TYPE_CHECKING:
    from service.jobs.queue import JobQueue, Priority


def silent(_progress: dict[str, Any]) -> None:
    """The report of a caller that wants none."""


class Workspace:
    """One directory of models, data set statistics and jobs, and what can be done with it.

    Nothing is opened before it is needed; the control database and the job queue have one lock for that.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._opening = threading.RLock()
        self._opened: dict[str, Any] = {}

    @cached_property
    def layout(self) -> Layout:
        """Where everything is kept; its folders are made on first use."""
        return Layout(self.settings.workspace).create()

    @property
    def control_url(self) -> str:
        """SQLAlchemy URL of the control database."""
        return self.settings.control_url or self.layout.control_url

    @property
    def control(self) -> Control:
        """The control database, migrated when first opened."""
        opened: Control = self._open("control", lambda: open_control(self.control_url, self.layout.root))
        self.check_there()
        return opened

    @property
    def queue(self) -> "JobQueue":
        """The queue of durable jobs."""
        opened: JobQueue = self._open("queue", self._open_queue)
        self.check_there()
        return opened

    def _open_queue(self) -> "JobQueue":
        from service.jobs.queue import JobQueue  # DBOS takes half a second to import, and most commands need no jobs

        assert self.control is not None  # its WAL mode holds for the job tables in the same file
        return JobQueue(self.control_url, self.settings.job_concurrency, self.settings.job_poll_s)

    def check_there(self) -> None:
        """Refuse to go on with a control database that somebody has removed meanwhile."""
        if self.settings.control_url is None:
            self._open("witness", lambda: Witness(self.layout.control_path)).check()

    @property
    def temporary(self) -> Path:
        """A folder of this process' own in the workspace; should the process be killed, the next one sweeps it away."""
        opened: Temporary = self._open("temporary", lambda: Temporary(self.layout.scratch))
        return opened.path

    def _open(self, name: str, opener: Callable[[], Any]) -> Any:
        with self._opening:
            if name not in self._opened:
                self._opened[name] = opener()
            return self._opened[name]

    def close(self) -> None:
        """Give back what was opened."""
        with self._opening:
            while self._opened:
                self._opened.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def kinds(self) -> Kinds:
        """The steps of each kind of job."""
        kinds = steps.kinds(self)
        return {**kinds, **promotion.kinds(self, kinds["train"])}

    def clean(self, job_id: str) -> None:
        """Remove what a job that has ended left in its scratch folder."""
        shutil.rmtree(self.layout.scratch_directory(job_id), ignore_errors=True)

    # Data sets

    def register_dataset(self, request: DatasetRequest, *, is_remote: bool = False) -> Dataset:
        """Register Parquet files after opening them; a small data set gets its schema at once.

        Parameters
        ----------
        request : DatasetRequest
            Name, URIs, target and overrides.
        is_remote : bool
            Whether the request came over REST, where the data roots bind.

        Raises
        ------
        OutsideRoots, SourceError, UnknownColumn, SchemaError, Conflict, storage.errors.Conflict
        """
        source = self.open_source(request.uris) if is_remote else Source.open(request.uris)
        if request.target is not None and request.target not in source.arrow_schema.names:
            raise UnknownColumn(request.target, source.arrow_schema.names)
        is_new = not datasets.is_registered(self.control, request.name)
        place = self.layout.dataset_directory(request.name)
        if is_new:  # what a deletion that was interrupted has left is of other files
            remove_counted(place)
        rows.check_rules(Forgotten(place / RULES), request.name, source)
        dataset = datasets.register_dataset(
            self.control,
            Dataset(
                name=request.name,
                uris=tuple(request.uris),
                target=request.target,
                columns=request.columns,
                files=tuple(map(steps.file_facts, source.files)),
            ),
        )
        if source.n_rows * len(source.arrow_schema) <= self.settings.inline_schema_cells:
            try:
                self.infer_schema(request.name)
            except Exception:
                # A data set that nothing can be learned from is refused here, not by the first job.
                if is_new:
                    datasets.delete_dataset(self.control, request.name)
                raise
            dataset = datasets.get_dataset(self.control, request.name)
        return dataset

    def open_source(self, uris: Sequence[str]) -> Source:
        """The data behind URIs that came over REST: they, and the files that they lead to, lie in the data roots.

        Raises
        ------
        OutsideRoots, SourceError
        """
        self.check_roots(uris)
        source = Source.open([roots.plain(uri) for uri in uris])
        if "://" not in roots.plain(uris[0]):  # a link in a folder may lead out of it; object stores have none
            self.check_roots([file.path for file in source.files])
        return source

    def check_roots(self, uris: Sequence[str]) -> None:
        """Refuse URIs outside the configured data roots.

        Raises
        ------
        OutsideRoots
        """
        roots.check_roots(uris, self.settings)

    def dataset(self, name: str) -> Dataset:
        """One registered data set."""
        return datasets.get_dataset(self.control, name)

    def datasets(self, limit: int = 100, cursor: str | None = None) -> Page[Dataset]:
        """Registered data sets by name."""
        return datasets.list_datasets(self.control, limit, cursor)

    def delete_dataset(self, name: str) -> None:
        """Forget a data set and what was counted of it; its files, its rules of forgotten rows and its models stay."""
        datasets.delete_dataset(self.control, name)
        remove_counted(self.layout.dataset_directory(name))

    def infer_schema(self, name: str, report: Report = silent) -> None:
        """Infer and keep the schema of a registered data set, in one pass."""
        run_now(self.kinds["schema"], f"{LOCAL}schema", SchemaRequest(dataset=name).model_dump(), report)

    def dataset_schema(self, name: str) -> dict[str, Any]:
        """The schema that was inferred for a data set, as it is written in JSON.

        Raises
        ------
        InvalidRequest
            If no pass has been made over the data yet.
        """
        text = self.dataset(name).schema_json
        if text is None:
            raise InvalidRequest(
                f"The schema of data set {name!r} is not known yet: submit a job of kind 'schema', or train.",
                dataset=name,
            )
        return dict(json.loads(text))

    # API keys

    def create_key(self, name: str, role: Role, days: float | None = None) -> tuple[ApiKey, str]:
        """Make an API key; its token is returned here and never again."""
        expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
        return keys.create_key(self.control, name, role, expires_at)

    def keys(self, limit: int = 100, cursor: str | None = None) -> Page[ApiKey]:
        """All API keys by name, without their tokens."""
        return keys.list_keys(self.control, limit, cursor)

    def revoke_key(self, name: str) -> ApiKey:
        """End an API key; servers refuse it within the poll interval."""
        return keys.revoke_key(self.control, name)

    # Models

    def train(self, request: TrainRequest, report: Report = silent) -> ModelVersion:
        """Train in this process and add the version to the registry.

        Parameters
        ----------
        request : TrainRequest
            Data, learner, parameters and how to evaluate.
        report : callable
            Called with progress between chunks; raising Cancelled in it stops.
        """
        return self.train_with_report(request, report)[0]

    def train_with_report(
        self, request: TrainRequest, report: Report = silent
    ) -> tuple[ModelVersion, list[dict[str, Any]]]:
        """As `train`, with what was read and what was reused for each statistic."""
        published = self._run_here("train", request, report)
        version = models.get_version(self.control, published["model"], str(published["version"]))
        return version, published["passes"]

    def _run_here(self, kind: str, request: TrainRequest | ForgetRequest, report: Report) -> dict[str, Any]:
        job_id, asked = f"{LOCAL}{uuid.uuid4().hex[:12]}", request.model_dump()
        try:
            with watched_here(job_id, limits_of(self.settings, asked)) as allowance:

                def checked(progress: dict[str, Any]) -> None:
                    allowance.check()
                    report(progress)

                return run_now(self.kinds[kind], job_id, asked, checked, allowance.memory)
        finally:
            self.clean(job_id)

    def evaluate(self, request: EvaluateRequest, report: Report = silent) -> dict[str, Any]:
        """Measure a model version on a data set, in this process."""
        return run_now(self.kinds["evaluate"], f"{LOCAL}{uuid.uuid4().hex[:12]}", request.model_dump(), report)

    def forget(self, request: ForgetRequest, report: Report = silent) -> dict[str, Any]:
        """Take rows out of the data that models are trained on, and out of the models, in this process."""
        steps.check_request(self, request)
        return self._run_here("forget", request, report)

    def data_kind(self, name: str) -> Literal["dataset", "model"]:
        """Whether a name is a data set's; else it is a model's."""
        try:
            self.dataset(name)
        except NotFound:
            return "model"
        return "dataset"

    def model(self, reference: str) -> ModelVersion:
        """The version that "name", "name@3" or "name@alias" means."""
        return find_version(self.control, reference)

    def models(self, limit: int = 100, cursor: str | None = None) -> Page[RegisteredModel]:
        """The names in the registry."""
        return models.list_models(self.control, limit=limit, cursor=cursor)

    def versions(self, name: str, limit: int = 100, cursor: str | None = None) -> Page[ModelVersion]:
        """All versions of a model, newest first."""
        return models.list_versions(self.control, name, limit=limit, cursor=cursor)

    def aliases(self, name: str) -> dict[str, int]:
        """What each alias of a model means."""
        return dict(models.aliases(self.control, name))

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Let an alias mean a version; every serving process follows within the poll interval."""
        models.set_alias(self.control, name, alias, version)

    def delete_alias(self, name: str, alias: str) -> None:
        """Forget an alias."""
        models.delete_alias(self.control, name, alias)

    def served(self, reference: str) -> Served:
        """A mapped model for use in this process."""
        return map_version(self.model(reference))

    def query(self, reference: str, asked: Sequence[Query]) -> list[dict[str, Any]]:
        """Ask a model's joint distribution, in this process and for as long as it takes."""
        return queries.answers(self.served(reference).model, asked)

    def structure(self, reference: str) -> dict[str, Any]:
        """Nodes and edges of a model's graph."""
        return dict(self.served(reference).model.structure())

    # Jobs

    def submit(
        self,
        request: AnyRequest,
        idempotency_key: str | None = None,
        *,
        is_remote: bool,
        priority: "Priority" = "normal",
    ) -> Any:
        """Queue a job after checking what can be checked without reading data; see JobQueue.submit."""
        self.check_request(request, is_remote=is_remote)
        foresight.check_files(self, request)
        asked = request.model_dump(exclude={"kind"})
        return self.queue.submit(request.kind, asked, idempotency_key=idempotency_key, priority=priority)

    def job_log(self, job_id: str) -> str:
        """What a job has logged so far, a JSON object a line."""
        path = log_path(self.layout.root / "logs", self.queue.get(job_id).id)
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def forget_old_jobs(self) -> int:
        """Remove jobs that ended long ago, and their logs; returns how many."""
        before, n_forgotten = datetime.now(UTC) - timedelta(days=self.settings.job_days), 0
        notes = Notes(self.layout.root / "workers" / NOTES)
        while job_ids := self.queue.finished_before(before):
            self.queue.delete(job_ids)
            for job_id in job_ids:
                log_path(self.layout.root / "logs", job_id).unlink(missing_ok=True)
                notes.end(job_id)
            n_forgotten += len(job_ids)
        return n_forgotten

    def check_request(self, request: AnyRequest, *, is_remote: bool) -> None:
        """Refuse a job that could only fail, as far as it can be known without reading data."""
        named = promotion.checked_train(self, request) if isinstance(request, RefreshRequest) else request
        if is_remote:
            uris = [*(getattr(named, "uris", None) or ()), *(getattr(named, "test_uris", None) or ())]
            self.check_roots([*uris, *roots.files_of(getattr(named, "parameters", {}))])
        steps.check_request(self, named)
        check_limits(self.settings, request.model_dump())

    @cached_property
    def schedules(self) -> Schedules:
        """Jobs that are submitted again and again."""
        return Schedules(self)

    @cached_property
    def registry(self) -> Registry:
        """What goes beyond looking at models: tags, lineage, rollback, retention, export and import."""
        return Registry(self)

    # Scoring files

    def predict_files(self, reference: str, uris: Sequence[str], output: Path, **how: Any) -> int:
        """Score Parquet files into one; as `scoring.score_files`, returns the number of rows."""
        return scoring.score_files(self.served(reference).model, Source.open(list(uris)), output, **how)
