"""Settings of the service, defined in one place and read from FEWPASS_* environment variables or given in code."""

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from learners.passes.memory import machine_memory_bytes, parse_memory_size
from storage.files.workspace_layout import is_valid_name

MOST_BYTES = 1 << 50
LEAST_KEY = 16
# Those that may stand in a file, as orchestrators hand secrets out: FEWPASS_ADMIN_KEY_FILE names the file.
SECRETS, FILE = ("admin_key", "control_url"), "_FILE"
CLUSTER = re.compile(r"local(:([1-9]\d?|1\d\d|2[0-4]\d|25[0-6]))?|(tcp|tls|ws|wss|ucx)://\S+:\d+")
# Read by programs beside the service, or by its command line alone.
OTHERS = ("FEWPASS_CREDENTIALS_", "FEWPASS_DEBUG", "FEWPASS_LOAD_", "FEWPASS_BENCH_", "FEWPASS_TEST_")


class Settings(BaseSettings):
    """All operator settings. The environment variable of a setting is FEWPASS_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="FEWPASS_", frozen=True, extra="forbid", allow_inf_nan=False)

    workspace: Path = Field(
        default=Path("workspace"),
        description="Folder for models, statistics of data sets, and the scratch files of jobs.",
    )
    control_url: str | None = Field(
        default=None,
        repr=False,
        validate_default=True,
        description="SQLAlchemy URL of the control database. Default: SQLite in the workspace.",
    )
    host: str = Field(
        default="127.0.0.1", description="Address to listen on. The default accepts requests from this machine only."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    workers: int = Field(default=1, ge=1, le=256, description="Number of serving processes.")
    job_workers: int = Field(
        default=1, ge=0, le=64, description="Number of job worker processes that `fewpass serve` starts."
    )
    predict_only: bool = Field(
        default=False, description="Serve only predictions, health and metrics: no control plane, no job workers."
    )

    require_keys: bool = Field(
        default=False, description="Require API keys on loopback too. Every other address always requires them."
    )
    admin_key: str | None = Field(
        default=None,
        repr=False,
        validate_default=True,
        description="A token with the role admin, in addition to the keys in the workspace. Meant for containers.",
    )
    oidc_issuer: str | None = Field(
        default=None,
        description="Issuer of the company's login, as in its tokens, such as https://login.example/realms/main. The server then accepts tokens in addition to API keys; needs the extra oidc.",
    )
    oidc_audience: str | None = Field(
        default=None, description="Required audience of tokens: the client id of this server."
    )
    oidc_jwks: str | None = Field(
        default=None, description="The issuer's public keys (JWKS): a file, or an https:// URL."
    )
    oidc_role_claim: str = Field(
        default="roles",
        min_length=1,
        description="Claim with the roles; dots select members of objects: realm_access.roles.",
    )
    oidc_roles: Annotated[dict[str, Literal["read", "predict", "train", "admin"]], NoDecode] = Field(
        default={},
        description='Map from values of the claim to roles, such as {"data-science": "train"}, in addition to the names of the roles.',
    )
    requests_per_s: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Requests per second that one API key may make in each serving process; further ones get a 429. Default: no limit.",
    )
    trusted_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Host names that requests may use, in addition to localhost and the listening address. Default: any name where keys are required, no other name where they are not.",
    )

    threads: int | None = Field(
        default=None, ge=1, le=1024, description="Threads of a training pass. Default: all cores."
    )
    job_concurrency: int = Field(default=1, ge=1, le=64, description="Jobs that one worker runs at the same time.")
    job_poll_s: float = Field(
        default=0.2, gt=0, le=60, description="Seconds between an idle worker's checks for a new job."
    )
    job_attempts: int = Field(
        default=5, ge=1, le=100, description="How often a job may start before it fails because its workers crash."
    )
    lease_s: float = Field(
        default=30.0,
        ge=1,
        le=3600,
        description="Seconds of silence after which a job worker counts as lost and others take over its jobs.",
    )
    cluster: str | None = Field(
        default=None,
        description="Dask scheduler that runs the passes of training jobs, such as tcp://host:8786; or local:4 for four processes here.",
    )
    memory: str | None = Field(
        default=None,
        description="Memory for the counts of a training, such as 4GiB; counts beyond it go to files. Default: a quarter of the machine.",
    )
    job_timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="Maximum run time of one job in seconds, since its last start. Default: no limit.",
    )
    job_memory: str | None = Field(
        default=None,
        description="Memory limit of a job that sets no memory_limit, such as 2GiB. Default: an equal share of the budget, or no limit without a budget.",
    )
    job_memory_budget: str | None = Field(
        default=None,
        description="Memory that all running jobs on one machine share, such as 8GiB. Jobs that do not fit wait.",
    )
    job_days: float = Field(
        default=90, gt=0, le=36_500, description="Days to keep ended jobs, with their logs and results."
    )
    audit_days: float = Field(default=400, gt=0, le=36_500, description="Days to keep lines of the audit log.")
    checkpoint_s: float = Field(
        default=15.0, gt=0, description="Seconds between checkpoints of a pass: the most that a killed job repeats."
    )
    evaluation_rows: int = Field(
        default=1_000_000, ge=1, description="Maximum number of rows on which a trained model is measured."
    )
    statistics_bytes: int = Field(
        default=8 * 2**30,
        ge=0,
        description="Maximum size of the stored statistics of one data set; beyond it the oldest are removed.",
    )
    progress_s: float = Field(
        default=0.25,
        gt=0,
        le=5,
        description="Seconds between a job's progress reports, and between its checks for cancellation.",
    )

    data_roots: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Folders or URI prefixes from which REST may read data. Default: anywhere where no keys are required, nowhere where they are.",
    )
    max_listed_entries: int = Field(
        default=50_000,
        ge=1,
        description="Maximum number of folder entries that REST searches for the files of one request.",
    )
    max_listing_s: float = Field(
        default=10.0, gt=0, description="Maximum seconds that REST searches folders for the files of one request."
    )
    max_body_bytes: int = Field(default=32 * 2**20, ge=1024, description="Largest request body in bytes.")
    max_decoded_bytes: int = Field(
        default=512 * 2**20,
        ge=2**20,
        description="Maximum size of one decoded request body, in bytes; estimated before decoding.",
    )
    max_in_flight_bytes: int = Field(
        default=2**31,
        ge=2**20,
        description="Maximum total size of the request bodies in one serving process, in bytes, decoded ones included.",
    )
    max_rows: int = Field(default=100_000, ge=1, description="Maximum number of rows in one prediction request.")
    max_import_bytes: int = Field(
        default=8 * 2**30, ge=1024, description="Largest model file that can be imported, in bytes."
    )
    max_upload_bytes: int = Field(
        default=2**30, ge=1024, description="Largest data file that can be uploaded, in bytes."
    )
    upload_quota_bytes: int | None = Field(
        default=None,
        ge=4096,
        description="Maximum total size of the uploaded files, in bytes; each counts at least 4 KiB. Default: no limit.",
    )
    max_model_bytes: int | None = Field(
        default=None,
        ge=2**20,
        description="Maximum size of an imported model unpacked, in bytes; checked before unpacking. Default: a quarter of the machine's memory.",
    )
    request_timeout_s: float = Field(
        default=60.0, gt=0, description="Seconds in which an answer must start; otherwise the request gets a 503."
    )
    query_s: float = Field(
        default=10.0, gt=0, description="Seconds that one request may spend on its queries. Longer ones run as jobs."
    )
    default_model: str | None = Field(default=None, description="Model for /invocations: name or name@alias.")
    inline_bytes: int = Field(
        default=32 * 1024,
        ge=0,
        description="JSON bodies up to this size, and Arrow streams up to sixteen times it, are answered on the event loop; larger ones on a thread.",
    )
    inline_schema_cells: int = Field(
        default=2_000_000,
        ge=0,
        description="Registering a data set with at most this many cells infers its schema at once.",
    )
    generation_poll_s: float = Field(
        default=0.25, gt=0, le=60, description="Seconds between a serving process's checks for moved aliases."
    )
    mapped_models: int = Field(
        default=256,
        ge=1,
        description="Maximum number of model versions that one serving process keeps mapped.",
    )
    warm_up: bool = Field(default=True, description="Run every kernel that requests use before /readyz answers 200.")

    monitoring: Literal["off", "counts", "rows"] = Field(
        default="counts",
        description="Record of served rows: none, counts of their values, or each row, too; a model may have its own setting.",
    )
    monitoring_rows_per_s: int = Field(
        default=20_000,
        ge=1,
        description="Served rows that a process counts per second; beyond that, it counts one in k, chosen by a hash.",
    )
    monitoring_fold_s: float = Field(default=1.0, gt=0, le=60, description="Seconds between counts of served rows.")
    monitoring_flush_s: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="Seconds between writes of counts: the most that a killed process loses.",
    )
    monitoring_look_s: float = Field(
        default=300.0, gt=0, le=86_400, description="Seconds between tests of models for alerts, metrics and webhooks."
    )
    webhook_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Hosts that webhooks may target although their addresses are internal."
    )
    monitoring_days: int = Field(default=400, ge=1, le=36_500, description="Days to keep counts of served rows.")
    monitoring_row_days: int = Field(
        default=30,
        ge=1,
        le=36_500,
        description="Days to keep served rows, predictions that wait for labels, and labels.",
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Minimum severity of log lines."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="One JSON object per line, or coloured text."
    )
    traces: bool = Field(
        default=False,
        description="Send a span of each request to the OpenTelemetry endpoint OTEL_EXPORTER_OTLP_ENDPOINT. Needs the extra otel.",
    )
    slow_request_s: float = Field(
        default=1.0, gt=0, description="Predictions slower than this many seconds get a log line each."
    )
    shutdown_s: float = Field(default=10.0, gt=0, description="Seconds that a stopping server waits for open requests.")

    @field_validator("memory", "job_memory", "job_memory_budget")
    @classmethod
    def _is_bytes(cls, text: str | None) -> str | None:
        if text is not None and parse_memory_size(text) > MOST_BYTES:
            raise ValueError(f"{text!r} is more memory than any machine has")
        return text

    @field_validator("workspace", mode="before")
    @classmethod
    def _is_folder(cls, path: Any) -> Any:
        if not str(path).strip() or "\0" in str(path):
            raise ValueError("must name a folder")
        return path

    @field_validator(*SECRETS, mode="before")
    @classmethod
    def _from_file(cls, value: Any, info: ValidationInfo) -> Any:
        variable = f"FEWPASS_{str(info.field_name).upper()}{FILE}"
        path = os.environ.get(variable)
        if not path:
            return value
        if value is not None:
            raise ValueError(f"is set, and {variable} is, too: keep one of them")
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot be read from the file that {variable} names ({path}): {error}") from None

    @field_validator("admin_key")
    @classmethod
    def _is_long(cls, key: str | None) -> str | None:
        if key is not None and len(key) < LEAST_KEY:  # without showing the key
            raise ValueError(f"must have at least {LEAST_KEY} characters; openssl rand -hex 24 makes a good one")
        return key

    @field_validator("trusted_hosts", "data_roots", "webhook_hosts", mode="before")
    @classmethod
    def _is_list(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "[]")
        except ValueError:
            raise ValueError(f"{value!r} must be a JSON list, such as {json.dumps([value])}") from None

    @field_validator("oidc_roles", mode="before")
    @classmethod
    def _is_object(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "{}")
        except ValueError:
            raise ValueError(f'{value!r} must be a JSON object, such as {{"data-science": "train"}}') from None

    @field_validator("oidc_jwks")
    @classmethod
    def _is_jwks(cls, source: str | None) -> str | None:
        if source is not None and "://" in source and not source.startswith("https://") and not _is_local(source):
            raise ValueError(f"{source!r} must be a file, or a URL that begins with https://")
        return source

    @model_validator(mode="after")
    def _is_login_whole(self) -> Self:
        given = {name: getattr(self, f"oidc_{name}") for name in ("issuer", "audience", "jwks")}
        missing = [f"FEWPASS_OIDC_{name.upper()}" for name, value in given.items() if not value]
        if 0 < len(missing) < len(given):
            raise ValueError(f"the company's login also needs {' and '.join(missing)}")
        return self

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
        if reference is not None and not all(map(is_valid_name, reference.split("@", 1))):
            raise ValueError(f"{reference!r} must be the name of a model, or name@alias")
        return reference

    @property
    def needs_keys(self) -> bool:
        """True if every request needs an API key: if other machines can reach the server, or the setting requires it."""
        return self.require_keys or not is_loopback(self.host)

    def environment(self) -> dict[str, str]:
        """Return FEWPASS_* variables that give another process these settings, without defaults."""
        changed = self.model_dump(mode="json", exclude_defaults=True)
        return {
            f"FEWPASS_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
            for name, value in changed.items()
            if value is not None
        }

    def within(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return a copy of an environment with these settings; its other variables stay."""
        names = {f"FEWPASS_{name.upper()}" for name in type(self).model_fields}  # also read in lower case
        names |= {f"FEWPASS_{name.upper()}{FILE}" for name in SECRETS}  # which have been read
        others = {name: value for name, value in environment.items() if name.upper() not in names}
        return others | self.environment()


def unknown_setting_warnings(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each FEWPASS_ variable that is not a setting, most likely a typing error."""
    known = [f"FEWPASS_{name.upper()}" for name in Settings.model_fields]
    known += [f"FEWPASS_{name.upper()}{FILE}" for name in SECRETS]
    warnings = []
    for name in sorted(environment):
        if name.startswith("FEWPASS_") and name not in known and not name.startswith(OTHERS):
            near = get_close_matches(name, known, 1)
            warnings.append(f"{name} is not a setting and has no effect" + (f" (similar: {near[0]})." if near else "."))
    return warnings


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def is_loopback(host: str) -> bool:
    """Return whether a server that listens on `host` can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def available_threads(settings: Settings) -> int:
    """Number of threads of a training pass: the setting, or the cores available to this process."""
    from learners.passes.threads import available_cores

    return settings.threads or available_cores()


def max_model_bytes(settings: Settings) -> int:
    """Limit on the unpacked bytes of an imported model: the setting, or a quarter of the machine's memory."""
    return settings.max_model_bytes or machine_memory_bytes() // 4
