"""Access control for data: a request never makes the server read files outside the data roots.

The rows of a database are read once, into a Parquet file of the workspace, which every pass then reads.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from learners.errors import SourceError, one_line_error_text, redact_uri_secrets
from learners.passes.sources.credentials import SCHEME as CREDENTIALS
from learners.passes.sources.credentials import resolve_credentials_uri
from learners.passes.sources.csv.types import declared_text_types
from learners.passes.sources.file_access import FileAccess
from learners.passes.sources.lake.lake_tables import parse_lake_table_uri
from learners.passes.sources.path_expansion import WILDCARDS
from learners.passes.sources.source import Source
from learners.schema import Schema
from service.product.datasets.dataset_statistics import load_column_order
from service.requests.abandonment import check_still_asked
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest, OutsideRoots
from service.settings import Settings
from service.workspace import Workspace
from storage.datasets import dataset_definitions
from storage.datasets.databases import UnreadableDatabase, duckdb_rows, postgres_rows
from storage.files.atomic_files import write_file_atomically
from storage.files.duckdb_files import quote_sql_identifier

# Never data, whoever asks: what the kernel and the system keep.
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/boot", "/run", "/var/run")
_POSTGRES = ("postgresql", "postgres")
# What is asked for comes last, so that a query may hold any sign.
_QUESTION = re.compile(r"[?&](table|query)=", re.IGNORECASE)
_METADATA = b"fewpass.database"
# Of a URI, and of one that asks a database: longer ones name nothing, and patterns for them take time with their square.
MOST_URI_LENGTH, MOST_QUERY_LENGTH, MOST_PART_LENGTH = 4096, 16_384, 255
MOST_STORED_BYTES = 1 << 20  # of one request that came over REST: lists show five hundred


def open_data_source(
    workspace: Workspace,
    uris: Sequence[str] | None = None,
    *,
    dataset: str | None = None,
    is_remote: bool = True,
    columns: JSONMapping | None = None,
    schema: Schema | None = None,
    at: str | None = None,
) -> Source:
    """Open the rows of files, globs, folders or URIs, or of a registered data set (OutsideRoots, SourceError,
    NotFound).

    Parameters
    ----------
    is_remote : whether they came over REST: then they, and the files that they lead to, must lie in the data roots
    columns : column settings of the request, in addition to those of the data set
    schema : of the model that is to read the rows; it and `columns` tell which columns of CSV and JSON lines are text
    at : version or time of a lake table
    """
    check_uri_secrets(uris or ())
    registered = None if uris is not None else dataset_definitions.get_dataset(workspace.control, str(dataset))
    places = list(uris or ()) if registered is None else list(registered.uris)
    known = {} if registered is None else dict(registered.columns)
    types = declared_text_types(schema, known | dict(columns or {}))
    order = [] if registered is None else load_column_order(workspace, registered.name)
    if not is_remote:
        return Source.open(places, types=types, at=at).ordered(order)
    check_data_roots(places, workspace.settings)
    # A link in a folder may lead out of it; object stores have none, and whoever runs a catalog says where its tables are.
    is_here = any("://" not in file_uri_to_path(uri) for uri in places)
    access = remote_file_access(workspace.settings, checks_paths=is_here)
    return Source.open([openable_uri(uri) for uri in places], types=types, at=at, access=access).ordered(order)


def check_uri_secrets(uris: Sequence[str]) -> None:
    """Raise InvalidRequest for a URI that is too long, or that has a password or a signature, which jobs, data sets and models would show."""
    for uri in uris:
        check_uri_length(uri)
        shown = redact_uri_secrets(uri)
        if shown != uri:
            raise InvalidRequest(
                f"{shown} contains a secret, which everyone who may read jobs and models would see. Put the URI of its folder into "
                "FEWPASS_CREDENTIALS_NAME of the server (or a file that holds it into "
                "FEWPASS_CREDENTIALS_NAME_FILE), and use credentials://name/file.parquet.",
                field="uris",
            )


def check_uri_length(uri: str) -> None:
    """Refuse a URI that is longer than a path may be, or a pattern with a part that no name can match (InvalidRequest)."""
    is_query = is_database_uri(uri)
    most = MOST_QUERY_LENGTH if is_query else MOST_URI_LENGTH
    if len(uri) > most:
        raise InvalidRequest(
            f"A URI has {len(uri):,} characters ({uri[:60]}…); the limit is {most:,}. Name a folder or a shorter pattern.",
            field="uris",
        )
    part = "" if is_query else max(uri.split("/"), key=len)
    if len(part) > MOST_PART_LENGTH and any(mark in part for mark in WILDCARDS):
        raise InvalidRequest(
            f"A part of a pattern has {len(part):,} characters ({part[:60]}…); the limit is {MOST_PART_LENGTH}. Write a shorter pattern.",
            field="uris",
        )


def check_stored_size(request: BaseModel) -> None:
    """Refuse a request with more bytes or URIs than may be stored and shown in lists (InvalidRequest)."""
    n_bytes = len(request.model_dump_json())
    if n_bytes > MOST_STORED_BYTES:
        raise InvalidRequest(
            f"The request has {n_bytes:,} bytes; the limit is {MOST_STORED_BYTES:,}. Name a folder or a pattern instead of single files, "
            "and leave out columns without settings.",
            max_bytes=MOST_STORED_BYTES,
        )


def file_uri_to_path(uri: str) -> str:
    """Return the path of a file: URI or a lake table, so that the checked path is the opened one; anything else is
    returned unchanged.
    """
    uri = parse_lake_table_uri(uri).place
    if uri[:7].lower() != "file://":
        return uri
    parts = urlsplit(uri)
    if parts.netloc.lower() not in {"", "localhost"} or parts.query or parts.fragment:
        raise OutsideRoots(f"{uri} is not a file of this machine. Write file:///path, or just the path.", uri=uri)
    return url2pathname(parts.path)


def openable_uri(uri: str) -> str:
    """Return the path or URI to open: the path of a file: URI, and the URI of a lake table with its version."""
    address = parse_lake_table_uri(uri)
    return file_uri_to_path(uri) if address.place == uri else uri.replace(address.place, file_uri_to_path(uri))


def resolve_data_path(uri: str) -> str:
    """Resolve links and ".." of a local path; other URIs are returned unchanged."""
    uri = file_uri_to_path(uri)
    try:
        return uri if "://" in uri else str(Path(uri).resolve())
    except (OSError, RuntimeError) as error:  # before Python 3.13 a loop is the latter
        raise OutsideRoots(f"{uri} cannot be opened: its symbolic links form a cycle.", uri=uri) from error


def learner_parameter_files(parameters: JSONMapping) -> list[str]:
    """Return the files named by a learner's parameters."""
    return [str(parameters["circuit"])] if parameters.get("circuit") else []


def parameters_with_file_paths(parameters: JSONMapping) -> JSONObject:
    """Return a learner's parameters with file URIs replaced by paths."""
    files = learner_parameter_files(parameters)
    return dict(parameters) | ({"circuit": file_uri_to_path(files[0])} if files else {})


def check_data_roots(uris: Sequence[str], settings: Settings) -> None:
    """Refuse URIs outside the configured data roots, and files of the system wherever the roots are (OutsideRoots, InvalidRequest)."""
    rule = RootRule.of(settings)
    for uri in uris:
        check_uri_length(uri)
        rule(uri)


def remote_file_access(settings: Settings, *, checks_paths: bool = True) -> FileAccess:
    """Return which files a request may make the server read, and how many entries it may list to find them."""
    rule = RootRule.of(settings) if checks_paths else None
    return FileAccess(rule, settings.max_listed_entries, settings.max_listing_s, check_still_asked)


@dataclass(frozen=True)
class RootRule:
    """Refuses URIs outside the data roots after resolving links; `roots` are resolved."""

    roots: tuple[str, ...]
    is_closed: bool  # keys are needed, and no root is configured

    @classmethod
    def of(cls, settings: Settings) -> RootRule:
        """Return the root rule of a server's settings."""
        roots = tuple(resolve_data_path(root) for root in settings.data_roots)
        return cls(roots, settings.needs_keys and not roots)

    def __call__(self, uri: str) -> None:
        """Refuse a path or URI that may not be read (OutsideRoots)."""
        if self.is_closed:
            raise OutsideRoots(
                "This server may not read any data yet: set FEWPASS_DATA_ROOTS to folders or URI prefixes, such as "
                "FEWPASS_DATA_ROOTS='[\"/data/tables\"]'."
            )
        if "\0" in uri or not uri:
            raise OutsideRoots(f"{uri!r} is not a path.", uri=uri)
        place = resolve_data_path(uri)
        around = [root for root in self.roots if _is_below(place, root)]
        if self.roots and not around:
            raise OutsideRoots(f"{uri} is outside the folders that this server may read.", uri=uri)
        # A root inside such a folder, as /dev/shm/tables, is meant.
        if _is_of_system(place) and not any(_is_of_system(root) for root in around):
            raise OutsideRoots(f"{uri} is a system path, which is never a data set.", uri=uri)


def _is_of_system(place: str) -> bool:
    return "://" not in place and any(_is_below(place, folder) for folder in SYSTEM)


def _is_below(place: str, root: str) -> bool:
    if "://" not in place:
        return "://" not in root and os.path.commonpath([place, root]) == root
    if "://" not in root:
        return False
    # The query of a URI may name another server, so it must be that of the root.
    (path, _, query), (root_path, _, root_query) = place.partition("?"), root.partition("?")
    is_plain = ".." not in path and "%" not in path and "\\" not in path and "#" not in place and "@" not in path
    return is_plain and query == root_query and (path == root_path or path.startswith(root_path.rstrip("/") + "/"))


@dataclass(frozen=True)
class DatabaseQuery:
    """A database query named by a URI; `uri` is the form shown and stored, without secrets.

    `place` is the path to open: the path of a DuckDB file, or the URI of a PostgreSQL server with its secret.
    """

    uri: str
    place: str
    sql: str
    is_duckdb: bool

    def rows(self, spill: Path) -> AbstractContextManager[pa.RecordBatchReader]:
        """Read the rows of the query, once."""
        if self.is_duckdb:
            return duckdb_rows(Path(self.place), self.sql, spill)
        return postgres_rows(self.place, self.sql)

    def reason(self, error: Exception) -> str:
        """Return the database's error message with the password, which it may repeat, removed."""
        text = one_line_error_text(error)
        password = None if self.is_duckdb else urlsplit(self.place).password
        return text.replace(unquote(password), "***").replace(password, "***") if password else text


def is_database_uri(uri: str) -> bool:
    """Return whether a URI names a database, by its scheme or by the query part of `credentials://name`."""
    scheme = uri.partition("://")[0].lower() if "://" in uri else ""
    return scheme in ("duckdb", *_POSTGRES) or (scheme == CREDENTIALS and _QUESTION.search(uri) is not None)


def parse_database_uri(uri: str) -> DatabaseQuery:
    """Parse a database URI into its query.

    `duckdb://shop.db?table=orders`, `duckdb:///data/shop.db?query=SELECT …`, `postgresql://ana@host/shop?query=SELECT …`, and
    `credentials://shop?query=SELECT …` with such a URI in FEWPASS_CREDENTIALS_SHOP. A query with spaces is used
    unchanged, one without is percent-decoded. Raises InvalidRequest if the URI carries a secret, SourceError.
    """
    check_uri_secrets([uri])
    match = _QUESTION.search(uri)
    if match is None or not (text := uri[match.end() :].strip()):
        raise SourceError(uri, "names no table or query. End it with ?table=NAME or ?query=SELECT ….")
    kind, base = match[1].lower(), uri[: match.start()]
    text = text if " " in text else unquote(text)
    sql = text if kind == "query" else f"SELECT * FROM {'.'.join(map(quote_sql_identifier, text.split('.')))}"
    place = resolve_credentials_uri(base) if base.partition("://")[0].lower() == CREDENTIALS else base
    scheme = place.partition("://")[0].lower()
    if scheme == "duckdb":
        path = Path(unquote(place.partition("://")[2])).expanduser().absolute()
        shown = f"duckdb://{path}?{kind}={text}" if place == base else f"{base}?{kind}={text}"
        return DatabaseQuery(shown, str(path), sql, True)
    if scheme not in _POSTGRES:
        raise SourceError(uri, "is not a database: its credentials contain neither duckdb:// nor postgresql://.")
    return DatabaseQuery(f"{base}{match[0][0]}{kind}={text}", place, sql, False)


def materialise_database_uris(workspace: Workspace, uris: Sequence[str]) -> list[str]:
    """Replace each database URI by a Parquet file of its rows, and return all URIs.

    The query runs once, now; the file in the workspace's folder `queries` replaces that of an earlier run. So all
    passes see the same rows, and a refresh counts the file again if they have changed. Raises InvalidRequest or
    SourceError, Unwritable if the disk does not take the rows.
    """
    return [str(_written(workspace, parse_database_uri(uri))) if is_database_uri(uri) else uri for uri in uris]


def _written(workspace: Workspace, query: DatabaseQuery) -> Path:
    from learners.estimators.table_inputs import rows_as_record_batches  # which imports scikit-learn

    path = workspace.layout.queries / f"{hashlib.sha256(query.uri.encode()).hexdigest()[:16]}.parquet"
    try:
        with write_file_atomically(path, replace=True) as draft, query.rows(draft.parent / "spill") as reader:
            rows = rows_as_record_batches(reader, None)
            schema = pa.schema([field.remove_metadata() for field in rows.arrow_schema], {_METADATA: query.uri})
            with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
                for batch in rows.batches:
                    writer.write_batch(batch.cast(schema))
    except UnreadableDatabase as error:
        raise SourceError(query.uri, f"cannot be read ({query.reason(error)}).") from error
    except (pa.ArrowException, NotImplementedError) as error:
        reason = f"its rows cannot be stored ({query.reason(error)}). Leave that column out of the query, or CAST it."
        raise SourceError(query.uri, reason) from error
    return path


def database_uris_by_file(workspace: Workspace, paths: Iterable[str]) -> JSONObject:
    """Map the files that hold rows of a database to the URIs they were read from."""
    uris: JSONObject = {}
    for path in paths:
        if Path(path).parent == workspace.layout.queries:
            with suppress(OSError, pa.ArrowException):  # replaced meanwhile: the file's identity tells that
                uris[path] = (pq.read_schema(path).metadata or {}).get(_METADATA, b"").decode()
    return uris
