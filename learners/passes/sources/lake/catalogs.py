"""Iceberg catalogs, which locate a table's newest metadata: `catalog://NAME/NAMESPACE.TABLE`, configured by pyiceberg's
settings.
"""

from __future__ import annotations

import re

from learners.errors import SourceError, one_line_error_text

SCHEME = "catalog"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_INSTALL = "is a table of an Iceberg catalog, which needs one more library: pip install 'fewpass[lake]'."


def catalog_metadata_file(uri: str) -> str:
    """Return the metadata file from the catalog.

    Raises SourceError if the catalog is not configured, cannot be reached, or has no such table.
    """
    name, _, table = uri.partition("://")[2].partition("/")
    if _NAME.fullmatch(name) is None or "." not in table:
        raise SourceError(uri, "does not name a table of a catalog. Write catalog://NAME/NAMESPACE.TABLE.")
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
    except ImportError as error:
        raise SourceError(uri, _INSTALL) from error
    try:
        return str(load_catalog(name).load_table(table).metadata_location)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise SourceError(uri, f"is not a table of the catalog {name!r}.") from error
    except Exception as error:  # of whatever library speaks to the catalog: SQLAlchemy, requests, thrift, botocore
        remedy = f"Set PYICEBERG_CATALOG__{name.upper()}__URI, or the catalog in ~/.pyiceberg.yaml."
        raise SourceError(uri, f"its catalog does not answer ({one_line_error_text(error)}). {remedy}") from error
