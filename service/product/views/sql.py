"""Networks as SQL, for a warehouse to answer with."""

from collections.abc import Sequence

from learners.registry.sql.script import sql_script
from service.product.versions.served import served
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
    version = served(workspace, reference)
    name = version.name.replace(".", "_") if view is None else view
    return sql_script(version.model, name=name, table=table, dialect=dialect, key=key, absent=absent)
