"""With which versions of which libraries a model is made, as its file tells."""

from functools import cache

import pyarrow as pa

from learners.models.library_versions import installed_version
from service.version import VERSION

LIBRARIES = ("numpy", "numba", "pyarrow", "duckdb", "xgboost", "scikit-learn")


@cache
def libraries() -> pa.Table:
    """With which versions of the libraries this process works: name, version."""
    versions = [VERSION, *(installed_version(name) for name in LIBRARIES)]
    return pa.table({"name": ["fewpass", *LIBRARIES], "version": versions})
