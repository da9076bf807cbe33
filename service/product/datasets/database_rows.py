"""Queries as files: the rows of a database are read once, into a Parquet file of the workspace, which every pass then reads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from learners.errors import SourceError, one_line
from learners.passes.sources.credentials import SCHEME as CREDENTIALS
from learners.passes.sources.credentials import place_of
from service.product.datasets.data_roots import refuse_secrets
from service.requests.json_values import JSONObject
from service.workspace import Workspace
from storage.datasets.databases import UnreadableDatabase, duckdb_rows, postgres_rows
from storage.files.duckdb_files import quoted
from storage.files.workspace_layout import publish

_POSTGRES = ("postgresql", "postgres")
# What is asked for comes last, so that a query may hold any sign.
_QUESTION = re.compile(r"[?&](table|query)=", re.IGNORECASE)
_METADATA = b"fewpass.database"


@dataclass(frozen=True)
class DatabaseQuery:
    """A query on a database, as a URI names it; the URI is as it is shown and kept, without secrets.

    `place` is what is opened: the path of a DuckDB file, or the URI of a PostgreSQL server with its secret.
    """

    uri: str
    place: str
    sql: str
    is_duckdb: bool

    def rows(self, spill: Path) -> AbstractContextManager[pa.RecordBatchReader]:
        """Its rows, once."""
        if self.is_duckdb:
            return duckdb_rows(Path(self.place), self.sql, spill)
        return postgres_rows(self.place, self.sql)

    def reason(self, error: Exception) -> str:
        """The words of the database, without the password, which it may repeat."""
        text = one_line(error)
        password = None if self.is_duckdb else urlsplit(self.place).password
        return text.replace(unquote(password), "***").replace(password, "***") if password else text


def is_database(uri: str) -> bool:
    """Whether a URI names a database, by its scheme, or by what it asks of `credentials://name`."""
    scheme = uri.partition("://")[0].lower() if "://" in uri else ""
    return scheme in ("duckdb", *_POSTGRES) or (scheme == CREDENTIALS and _QUESTION.search(uri) is not None)


def database_query(uri: str) -> DatabaseQuery:
    """What a URI asks of a database.

    `duckdb://shop.db?table=orders`, `duckdb:///data/shop.db?query=SELECT …`, `postgresql://ana@host/shop?query=SELECT …`, and
    `credentials://shop?query=SELECT …` with such a URI in FEWPASS_CREDENTIALS_SHOP. A query with spaces is taken as it stands, one without
    is percent-decoded.
    Raises InvalidRequest if the URI carries a secret, SourceError.
    """
    refuse_secrets([uri])
    match = _QUESTION.search(uri)
    if match is None or not (text := uri[match.end() :].strip()):
        raise SourceError(uri, "asks for nothing. End it with ?table=NAME or ?query=SELECT ….")
    kind, base = match[1].lower(), uri[: match.start()]
    text = text if " " in text else unquote(text)
    sql = text if kind == "query" else f"SELECT * FROM {'.'.join(map(quoted, text.split('.')))}"
    place = place_of(base) if base.partition("://")[0].lower() == CREDENTIALS else base
    scheme = place.partition("://")[0].lower()
    if scheme == "duckdb":
        path = Path(unquote(place.partition("://")[2])).expanduser().absolute()
        shown = f"duckdb://{path}?{kind}={text}" if place == base else f"{base}?{kind}={text}"
        return DatabaseQuery(shown, str(path), sql, True)
    if scheme not in _POSTGRES:
        raise SourceError(uri, "is no database: its credentials hold neither duckdb:// nor postgresql://.")
    return DatabaseQuery(f"{base}{match[0][0]}{kind}={text}", place, sql, False)


def with_rows_of_databases(workspace: Workspace, uris: Sequence[str]) -> list[str]:
    """The URIs, with a Parquet file in place of each that names a database.

    The query runs once, now; the file in the workspace's folder `queries` replaces that of an earlier run. So all
    passes see the same rows, and a refresh counts the file anew if they have changed. Raises InvalidRequest or
    SourceError, Unwritable if the disk does not take the rows.
    """
    return [str(_written(workspace, database_query(uri))) if is_database(uri) else uri for uri in uris]


def _written(workspace: Workspace, query: DatabaseQuery) -> Path:
    from learners.estimators.forms import rows_of  # which imports scikit-learn

    path = workspace.layout.queries / f"{hashlib.sha256(query.uri.encode()).hexdigest()[:16]}.parquet"
    try:
        with publish(path, replace=True) as draft, query.rows(draft.parent / "spill") as reader:
            rows = rows_of(reader, None)
            schema = pa.schema([field.remove_metadata() for field in rows.arrow_schema], {_METADATA: query.uri})
            with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
                for batch in rows.batches:
                    writer.write_batch(batch.cast(schema))
    except UnreadableDatabase as error:
        raise SourceError(query.uri, f"cannot be read ({query.reason(error)}).") from error
    except (pa.ArrowException, NotImplementedError) as error:
        reason = f"its rows cannot be kept ({query.reason(error)}). Leave that column out of the query, or CAST it."
        raise SourceError(query.uri, reason) from error
    return path


def databases_of(workspace: Workspace, paths: Iterable[str]) -> JSONObject:
    """Of those files that hold the rows of a database, the URI that they were read from."""
    found: JSONObject = {}
    for path in paths:
        if Path(path).parent == workspace.layout.queries:
            with suppress(OSError, pa.ArrowException):  # replaced meanwhile: the file's identity tells that
                found[path] = (pq.read_schema(path).metadata or {}).get(_METADATA, b"").decode()
    return found
