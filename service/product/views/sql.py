"""Networks as SQL, for a warehouse to answer with."""

from collections.abc import Sequence

from learners.registry.sql.script import sql_script
from service.product.versions.registry import find_version
from service.serving.predictor import map_version
from service.workspace import Workspace


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
