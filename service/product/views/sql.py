"""Networks as SQL, for a warehouse to answer with."""

from collections.abc import Sequence
from pathlib import Path

from learners.registry.sql.script import sql_script
from service.product.outputs import check_free
from service.product.versions.registry import find_version
from service.serving.predictor import map_version
from service.workspace import Workspace
from storage.files.workspace_layout import publish


def sql(
    workspace: Workspace,
    reference: str,
    table: str,
    dialect: str = "duckdb",
    view: str | None = None,
    key: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> str:
    """A version as SQL that answers every row of a table; see `learners.registry.sql.script.sql_script`.

    The view is called like the model, with `_` for dots, unless it gets a name.

    Raises
    ------
    NoSQL, TooLargeForSQL, UnknownDialect, UnsupportedColumn, UnwritableText, UnknownColumn, InvalidParameter
    """
    version = find_version(workspace, reference)
    name = version.name.replace(".", "_") if view is None else view
    return sql_script(map_version(version).model, name=name, table=table, dialect=dialect, key=key, absent=absent)


def write_sql(
    workspace: Workspace,
    reference: str,
    output: Path,
    table: str,
    dialect: str = "duckdb",
    view: str | None = None,
    key: Sequence[str] = (),
    absent: Sequence[str] = (),
    *,
    replace: bool = False,
) -> int:
    """Write the text of `sql` to a file that appears when it is complete; returns its bytes.

    Raises
    ------
    InvalidRequest
        If the file exists and is not to be replaced.
    NoSQL, TooLargeForSQL, UnknownDialect, UnsupportedColumn, UnwritableText, UnknownColumn, InvalidParameter
    """
    check_free(output, replace=replace)
    content = sql(workspace, reference, table, dialect, view, key, absent).encode()
    with publish(output, replace=replace) as draft:
        draft.write_bytes(content)
    return len(content)
