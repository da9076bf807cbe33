"""Open files as one table: by format, with folder columns, and aligned if their columns differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, columns_setting, one_line_error_text
from learners.passes.sources import credentials
from learners.passes.sources.adapted_files import file_with_constant_columns
from learners.passes.sources.csv.types import (
    Types,
    common_text_type,
    declared_csv_dialect,
    declared_type_and_reading,
    infer_text_type,
)
from learners.passes.sources.file_formats import CSV, FORMATS, PARQUET, file_format_by_extension
from learners.passes.sources.lake import catalogs
from learners.passes.sources.mixed_numbers import NUMERIC
from learners.passes.sources.parquet import read_parquet_footer
from learners.passes.sources.path_expansion import hive_partition_values
from learners.passes.sources.source_files import (
    SourceFile,
    arrow_type_family,
    file_with_digest,
    stamped_file,
)
from learners.schema.reading import Reading

if TYPE_CHECKING:
    from learners.passes.sources.tabular import TabularContent

# What pyarrow reaches by itself, and what fsspec adds. No others: a scheme such as fsspec's `local` would be a way around the
# checks of paths.
NATIVE = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "mock")
BY_FSSPEC = ("memory", "http", "https")
DATABASES = ("duckdb", "postgresql", "postgres")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def uri_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or URI, and the path on it. Raises SourceError if the URI is invalid or its
    scheme unknown.
    """
    if "://" not in uri:
        return pafs.LocalFileSystem(), uri
    match = SCHEME.match(uri)
    scheme = match[1].lower() if match else ""
    if scheme == credentials.SCHEME:
        return _with_credentials(uri)
    if scheme == catalogs.SCHEME:
        return uri_filesystem(catalogs.catalog_metadata_file(uri))
    if scheme in BY_FSSPEC:
        return _by_fsspec(uri, scheme)
    if scheme in DATABASES:
        raise SourceError(
            uri,
            "is a database. Use it with the commands train, evaluate, predict, score, impute and report. Elsewhere, export the rows to "
            "Parquet, or pass an Arrow stream to an estimator, such as duckdb.connect(path).sql(query).",
        )
    if scheme not in NATIVE:
        known = ", ".join(f"{name}://" for name in (*NATIVE[:-1], *BY_FSSPEC, credentials.SCHEME, catalogs.SCHEME))
        raise SourceError(uri, f"is not a usable URI. Give a path, or one of {known}.")
    # A glob is no valid URI everywhere: resolve its fixed part and put the rest back.
    fixed = uri.split("*")[0].rsplit("/", 1)[0] if "*" in uri else uri
    try:
        place, path = pafs.FileSystem.from_uri(fixed)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise SourceError(uri, f"is not a usable URI ({one_line_error_text(error)}).") from error
    return place, path + uri[len(fixed) :]


def _with_credentials(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system as `uri_filesystem` does; neither the returned path nor the errors contain the secret."""
    place = credentials.resolve_credentials_uri(uri)
    scheme = place.partition("://")[0].lower()
    options: dict[str, Any] = {}
    try:
        if scheme in ("http", "https"):
            place, options = credentials.split_http_credentials(place)
            return _by_fsspec(place, scheme, **options)
        return uri_filesystem(place)
    except (SourceError, ImportError, ValueError):  # whose words may be those of the secret
        reason = (
            f"cannot be opened with its credentials. Check the {scheme} URI in them, and pip install 'fewpass[remote]'."
        )
    raise SourceError(uri, reason)


def _by_fsspec(uri: str, scheme: str, **options: Any) -> tuple[pafs.FileSystem, str]:
    try:
        import fsspec

        if scheme == "memory":
            place = fsspec.filesystem("memory")
        else:
            # A redirection could lead to a server that nobody has allowed.
            place = fsspec.filesystem(
                scheme, allow_redirects=False, use_listings_cache=False, skip_instance_cache=True, **options
            )
    except ImportError as error:
        raise SourceError(
            uri, f"needs more libraries ({one_line_error_text(error)}): pip install 'fewpass[remote]'."
        ) from error
    return pafs.PyFileSystem(pafs.FSSpecHandler(place)), str(place._strip_protocol(uri))


def read_uri_bytes(uri: str) -> bytes:
    """Read a small file. Raises SourceError."""
    filesystem, path = uri_filesystem(uri)
    try:
        with filesystem.open_input_file(path) as stream:
            content: bytes = stream.read()
    except FileNotFoundError as error:
        raise SourceError(uri, "no such file.") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SourceError(uri, f"cannot be read ({one_line_error_text(error)}).") from error
    return content


def open_source_files(filesystem: pafs.FileSystem, paths: Sequence[str], types: Types) -> list[SourceFile]:
    """Open files, with their folder columns.

    `types`: types of columns of CSV and JSON lines, and how they are written. Raises SourceError.
    """
    files = _agreeing([stamped_file(filesystem, path, partial(_opened, filesystem, path, types)) for path in paths])
    added = _of_folders(files, types)
    return [
        file_with_digest(file_with_constant_columns(file, values)) for file, values in zip(files, added, strict=True)
    ]


def _opened(filesystem: pafs.FileSystem, path: str, types: Types) -> SourceFile:
    kind = file_format_by_extension(path)
    if kind is None or kind == PARQUET:
        return read_parquet_footer(filesystem, path)
    from learners.passes.sources.tabular import (
        inspect_tabular_file,  # pyarrow.dataset imports pandas, where it is installed
    )

    return inspect_tabular_file(filesystem, path, kind, types)


def _agreeing(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Make a column text in all text files if the families of its types differ."""
    types_by_name: dict[str, list[pa.DataType]] = {}
    for file in files:
        for field in file.arrow_schema if FORMATS[file.kind].is_text else ():
            types_by_name.setdefault(field.name, []).append(field.type)
    common = {name: common_text_type(types) for name, types in types_by_name.items()}
    changed = {name: kind for name, kind in common.items() if kind is not None}
    return [
        replace(file, content=cast("TabularContent", file.content).with_types(changed)) if file.kind == CSV else file
        for file in files
    ]


def _of_folders(files: Sequence[SourceFile], types: Types) -> list[dict[str, pa.Scalar[Any]]]:
    """Return the values that the folders add to each file's columns, with a common type for each name.

    Raises SourceError if only some files have a folder column of that name.
    """
    own = [set(file.arrow_schema.names) for file in files]
    texts = [
        {name: value for name, value in hive_partition_values(file.path).items() if name not in columns}
        for file, columns in zip(files, own, strict=True)
    ]
    names = list(dict.fromkeys(name for text in texts for name in text))
    for name in names:
        lacking = next((i for i, text in enumerate(texts) if name not in text and name not in own[i]), None)
        if lacking is not None:
            raise SourceError(
                files[lacking].path,
                f"has no column {name!r} and is not in a folder {name}=…, unlike other files of the data set.",
            )
    kinds = {}
    for name in names:
        kind, reading = declared_type_and_reading(types, name)
        kinds[name] = kind or infer_text_type(
            list(dict.fromkeys(text[name] for text in texts if name in text)), reading
        )
    return [{name: _scalar(value, kinds[name]) for name, value in text.items()} for text in texts]


def _scalar(value: str | None, kind: pa.DataType) -> pa.Scalar[Any]:
    if value is None:
        return pa.scalar(None, kind)
    return pa.scalar(value if pa.types.is_string(kind) else value.strip()).cast(kind)


def align_file_columns(files: Sequence[SourceFile], types: Types) -> tuple[list[SourceFile], list[str]]:
    """Align files to a common set of columns; missing columns get missing cells.

    `types`: which columns are dropped, and by what rule others count where files differ: those of any file, of all, of
    the first.
    Returns the files, of which one that has other columns by itself is known as another, and the names of the columns.
    Raises SourceError if files differ without a setting for it.
    """
    of_files = [file.arrow_schema.names for file in files]
    columns = list(dict.fromkeys(name for names in of_files for name in names))
    sets = [set(names) for names in of_files]
    if all(names == sets[0] for names in sets):
        return list(files), columns
    rule = declared_csv_dialect(types).columns_of
    if rule in ("first", "intersection"):
        columns = [name for name in of_files[0] if rule == "first" or all(name in names for names in sets)]
    if not columns:
        raise SourceError(files[0].path, "has no column in common with the other files.")
    if not rule:
        _check_agree(files, sets, types, columns)
    nulls = {name: pa.scalar(None, _type_of(name, files)) for name in columns}
    shaped = []
    for file, names in zip(files, sets, strict=True):
        added = {name: null for name, null in nulls.items() if name not in names}
        shaped.append(
            replace(file_with_constant_columns(file, added), columns=() if names == set(columns) else tuple(columns))
        )
    return shaped, columns


def dropped_columns(types: Types) -> set[str]:
    """Return the dropped columns."""
    return {name for name, known in types.items() if isinstance(known, Reading) and known.is_dropped}


def _check_agree(files: Sequence[SourceFile], sets: Sequence[set[str]], types: Types, columns: Sequence[str]) -> None:
    dropped = dropped_columns(types)
    for name in columns:
        lacking = [file.path for file, names in zip(files, sets, strict=True) if name not in names]
        if lacking and name not in dropped:
            holding = [file.path for file, names in zip(files, sets, strict=True) if name in names]
            more = f" (and {len(lacking) - 1} other files lack it, too)" if len(lacking) > 1 else ""
            option = columns_setting({"*": {"columns_of": "union"}})
            raise SourceError(
                lacking[0],
                f"has no column {name!r}{more}, which {holding[0]} has. Choose the columns: {option} takes those of any "
                f'file, with missing cells where one has none, "intersection" those of all, "first" those of the first; or drop '
                f"this one: {columns_setting({name: 'drop'})}.",
            )


def _type_of(name: str, files: Sequence[SourceFile]) -> pa.DataType:
    """Return the type of a column in the first file with values of a learnable type, else null."""
    for file in files:
        if name in file.arrow_schema.names:
            kind = file.arrow_schema.field(name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not arrow_type_family(kind).startswith(("null", "unsupported")):
                return kind
    return pa.null()


def common_file_schema(schemas: Sequence[tuple[str, pa.Schema]], dropped: Collection[str] = ()) -> pa.Schema:
    """Return the common schema of files whose columns have the same names and type families, in the order of most
    files.

    Different numeric types form one family; the types of `dropped` columns may differ.
    """
    _, first = schemas[0]
    if len(set(first.names)) < len(first.names):
        name = next(name for name in first.names if first.names.count(name) > 1)
        raise SourceError(schemas[0][0], f"has two columns named {name!r}. Rename one.")
    fields: dict[str, pa.Field] = {field.name: field for field in first}
    origin = dict.fromkeys(first.names, schemas[0][0])
    distinct = dict[pa.Schema, str]()  # of a thousand files, most have one schema
    for path, schema in schemas:
        distinct.setdefault(schema, path)
    for schema, path in distinct.items():
        for field in schema:
            known, new = arrow_type_family(fields[field.name].type), arrow_type_family(field.type)
            if known == "null":
                fields[field.name], origin[field.name] = field, path
            elif known in NUMERIC and new in NUMERIC and new != known:
                if known != "number":
                    fields[field.name] = field if new == "number" else field.with_type(pa.int64())
                    origin[field.name] = path
            elif new not in ("null", known) and field.name not in dropped:
                raise SourceError(
                    path,
                    f"column {field.name!r} is {field.type} here but {fields[field.name].type} in {origin[field.name]}. "
                    f"Make the types agree, or drop the column: {columns_setting({field.name: 'drop'})}.",
                )
    orders = Counter(tuple(schema.names) for _, schema in schemas)  # of equally frequent ones the first counts
    return pa.schema([fields[name] for name in orders.most_common(1)[0][0]])
