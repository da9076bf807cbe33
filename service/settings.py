"""Settings of the service: one place, read from FEWPASS_* environment variables or given in code."""

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from learners.memory import parse_bytes
from storage.names import is_name

MOST_BYTES = 1 << 50
LEAST_KEY = 16
CLUSTER = re.compile(r"local(:([1-9]\d?|1\d\d|2[0-4]\d|25[0-6]))?|(tcp|tls|ws|wss|ucx)://\S+:\d+")
# Read by programs beside the service, or by its command line alone.
OTHERS = ("FEWPASS_DEBUG", "FEWPASS_LOAD_", "FEWPASS_BENCH_", "FEWPASS_TEST_")


class Settings(BaseSettings):
    """Everything an operator may decide; each name is FEWPASS_<NAME> in the environment."""

    model_config = SettingsConfigDict(env_prefix="FEWPASS_", frozen=True, extra="forbid", allow_inf_nan=False)

    workspace: Path = Field(
        default=Path("workspace"), description="Directory of models, data set statistics and job scratch."
    )
    control_url: str | None = Field(
        default=None, description="SQLAlchemy URL of the control database; SQLite in the workspace unless given."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on; only this machine unless changed.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    workers: int = Field(default=1, ge=1, le=256, description="Serving processes.")
    job_workers: int = Field(
        default=1, ge=0, le=64, description="Job worker processes that `fewpass serve` starts and ends."
    )
    predict_only: bool = Field(
        default=False, description="Serve predictions, health and metrics, without the control plane and job workers."
    )

    require_keys: bool = Field(
        default=False, description="Require API keys also on loopback; on any other address they always are."
    )
    admin_key: str | None = Field(
        default=None,
        repr=False,
        description="A token with the role admin, besides the keys in the workspace; for containers.",
    )
    trusted_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Host names under which a server may be asked, besides localhost and where it listens; "
        "empty: any where keys are needed, none elsewhere.",
    )

    threads: int | None = Field(
        default=None, ge=1, le=1024, description="Threads of a training pass; every core unless given."
    )
    job_concurrency: int = Field(default=1, ge=1, le=64, description="Jobs that one worker runs at the same time.")
    job_poll_s: float = Field(default=0.2, gt=0, le=60, description="How often an idle worker looks for a new job.")
    job_attempts: int = Field(
        default=5, ge=1, le=100, description="Starts of one job before a crashing worker gives it up."
    )
    cluster: str | None = Field(
        default=None,
        description="Dask scheduler whose workers make the passes of training jobs, such as tcp://host:8786; or local:4.",
    )
    memory: str | None = Field(
        default=None,
        description="Counts of a training beyond this go to files, such as 4GiB; a quarter of the machine unless given.",
    )
    job_timeout_s: float | None = Field(
        default=None, gt=0, description="Longest run of one job, from its last start; none unless given."
    )
    job_memory: str | None = Field(
        default=None,
        description="Memory that a job may use which gives no memory_limit, such as 2GiB; "
        "an equal share of the budget, if there is one, else any.",
    )
    job_memory_budget: str | None = Field(
        default=None,
        description="Memory that the jobs running on one machine may use together, such as 8GiB; those beyond it wait.",
    )
    job_days: float = Field(
        default=90, gt=0, le=36_500, description="How long jobs that have ended are kept, with their logs and results."
    )
    checkpoint_s: float = Field(default=15.0, gt=0, description="Longest work of a pass that a killed job does again.")
    evaluation_rows: int = Field(
        default=1_000_000,
        ge=1,
        description="Most rows, kept back ones and others, that a trained model is measured on.",
    )
    statistics_bytes: int = Field(
        default=8 * 2**30, ge=0, description="Stored statistics of one data set; the oldest beyond it are removed."
    )
    progress_s: float = Field(
        default=0.25, gt=0, le=5, description="How often a job records progress and looks for a cancel."
    )

    data_roots: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Folders or URI prefixes that data sets over REST may be in; empty: any where no keys are needed, none elsewhere.",
    )
    max_body_bytes: int = Field(default=32 * 2**20, ge=1024, description="Largest request body.")
    max_rows: int = Field(default=100_000, ge=1, description="Most rows in one prediction request.")
    max_import_bytes: int = Field(default=8 * 2**30, ge=1024, description="Largest exported model that is imported.")
    request_timeout_s: float = Field(
        default=60.0, gt=0, description="Longest wait for the start of an answer; then the request is a 503."
    )
    query_s: float = Field(
        default=10.0, gt=0, description="Longest search for MAP assignments in one request; longer ones run as jobs."
    )
    default_model: str | None = Field(default=None, description="The model that /invocations asks: name or name@alias.")
    inline_bytes: int = Field(
        default=32 * 1024,
        ge=0,
        description="JSON bodies up to this size, and Arrow streams up to sixteen times it, are answered on the event loop, "
        "longer ones on a thread.",
    )
    inline_schema_cells: int = Field(
        default=2_000_000, ge=0, description="Registering a data set infers its schema at once up to this many cells."
    )
    generation_poll_s: float = Field(
        default=0.25, gt=0, le=60, description="How often serving looks for moved aliases."
    )
    mapped_models: int = Field(default=256, ge=1, description="Model versions that one serving process keeps mapped.")
    warm_up: bool = Field(default=True, description="Run the kernels of predictions once before /readyz says yes.")

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line shown."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="One JSON object per line, or coloured text."
    )
    slow_request_s: float = Field(default=1.0, gt=0, description="Predictions slower than this are logged one by one.")
    shutdown_s: float = Field(default=10.0, gt=0, description="How long a stopping server waits for open requests.")

    @field_validator("memory", "job_memory", "job_memory_budget")
    @classmethod
    def _is_bytes(cls, text: str | None) -> str | None:
        if text is not None and parse_bytes(text) > MOST_BYTES:
            raise ValueError(f"{text!r} is more memory than there is anywhere")
        return text

    @field_validator("workspace", mode="before")
    @classmethod
    def _is_folder(cls, path: Any) -> Any:
        if not str(path).strip() or "\0" in str(path):
            raise ValueError("must name a folder")
        return path

    @field_validator("admin_key")
    @classmethod
    def _is_long(cls, key: str | None) -> str | None:
        if key is not None and len(key) < LEAST_KEY:  # told without the key
            raise ValueError(f"must have at least {LEAST_KEY} characters; openssl rand -hex 24 makes a good one")
        return key

    @field_validator("trusted_hosts", "data_roots", mode="before")
    @classmethod
    def _is_list(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        try:
            return json.loads(given or "[]")
        except ValueError:
            raise ValueError(f"{given!r} must be a JSON list, such as {json.dumps([given])}") from None

    @field_validator("data_roots")
    @classmethod
    def _are_places(cls, roots: tuple[str, ...]) -> tuple[str, ...]:
        for root in roots:
            if "://" not in root and not Path(root).is_absolute():
                raise ValueError(f"{root!r} must begin with / or be a URI such as s3://bucket/tables")
        return roots

    @field_validator("cluster")
    @classmethod
    def _is_cluster(cls, address: str | None) -> str | None:
        if address is not None and CLUSTER.fullmatch(address) is None:
            raise ValueError(
                f"{address!r} must be tcp://host:port of a Dask scheduler, or local:4 for four processes here"
            )
        return address

    @field_validator("default_model")
    @classmethod
    def _is_model(cls, reference: str | None) -> str | None:
        if reference is not None and not all(map(is_name, reference.split("@", 1))):
            raise ValueError(f"{reference!r} must be the name of a model, or name@alias")
        return reference

    @property
    def needs_keys(self) -> bool:
        """Whether every request needs an API key: others than this machine can ask, or the setting says so."""
        return self.require_keys or not is_loopback(self.host)

    def environment(self) -> dict[str, str]:
        """The environment that gives another process these same settings.

        Returns
        -------
        dict of str
            Only FEWPASS_* names; values that are at their default are left out.
        """
        changed = self.model_dump(mode="json", exclude_defaults=True)
        return {
            f"FEWPASS_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
            for name, value in changed.items()
            if value is not None
        }

    def within(self, environment: Mapping[str, str]) -> dict[str, str]:
        """An environment that gives another process these same settings, whatever it has said of them until now.

        Parameters
        ----------
        environment : mapping of str
            Of which all else is kept.
        """
        names = {f"FEWPASS_{name.upper()}" for name in type(self).model_fields}  # also read in lower case
        kept = {name: value for name, value in environment.items() if name.upper() not in names}
        return kept | self.environment()


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """What to say of each FEWPASS_ variable that no setting has: most likely a typing error."""
    known = [f"FEWPASS_{name.upper()}" for name in Settings.model_fields]
    said = []
    for name in sorted(environment):
        if name.startswith("FEWPASS_") and name not in known and not name.startswith(OTHERS):
            near = get_close_matches(name, known, 1)
            said.append(f"{name} is no setting and does nothing" + (f" (similar: {near[0]})." if near else "."))
    return said


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def available_threads(settings: Settings) -> int:
    """Threads of a training pass: the setting, or the cores that this process may use."""
    return settings.threads or len(os.sched_getaffinity(0))
