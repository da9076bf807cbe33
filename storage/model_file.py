"""A model version on disk: one immutable DuckDB file, and its compiled Arrow form that serving processes map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model version.

    Parameters
    ----------
    duckdb_path, arrow_path : of the model and of its compiled form
    sha256 : of the DuckDB file
    n_bytes : of both files together
    """

    duckdb_path: Path
    arrow_path: Path
    sha256: str
    n_bytes: int


def write_model(
    directory: Path | str,
    name: str,
    version: int,
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    tables: Mapping[str, pa.Table],
) -> ModelFiles:
    raise NotImplementedError


def read_model(duckdb_path: Path | str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    raise NotImplementedError


def write_compiled(path: Path | str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    raise NotImplementedError


def map_compiled(path: Path | str, *, verify: bool = False) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    raise NotImplementedError


def verify(duckdb_path: Path | str) -> None:
    raise NotImplementedError


def rebuild_compiled(duckdb_path: Path | str) -> Path:
    raise NotImplementedError
