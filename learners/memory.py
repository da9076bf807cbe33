"""How much memory the statistics of this process may take, and where they go beyond it."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from learners.errors import InvalidParameter

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MIN_BYTES = 64 << 20


@dataclass(frozen=True)
class MemoryLimit:
    """A bound on the counts that passes keep in memory; counts beyond it go to sorted files.

    Parameters
    ----------
    n_bytes : int
    directory : Path
        Of the files, which are removed with the statistics that wrote them.
    """

    n_bytes: int
    directory: Path


def parse_bytes(text: str) -> int:
    """A number of bytes such as "512MiB", "4GB" or "1.5g".

    Raises
    ------
    InvalidParameter
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    n_bytes = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if n_bytes < MIN_BYTES:
        raise InvalidParameter("memory", text, "a number of bytes such as 512MiB or 4GiB, at least 64MiB")
    return n_bytes


def machine_bytes() -> int:
    """Memory of this machine, or of the container it pretends to be."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


_limit: MemoryLimit | None = None


def limit_memory(n_bytes: int, directory: Path | str | None = None) -> None:
    """Set the limit of this process."""
    global _limit  # noqa: PLW0603 — memory belongs to the process, whoever asks for it
    _limit = MemoryLimit(n_bytes, Path(directory or tempfile.gettempdir()))


def memory_limit() -> MemoryLimit:
    """The limit that was set; else FEWPASS_MEMORY, or a quarter of the machine."""
    if _limit is None or not _limit.directory.is_dir():  # the workspace whose folder it was may be closed
        text = os.environ.get("FEWPASS_MEMORY")
        limit_memory(parse_bytes(text) if text else machine_bytes() // 4)
    assert _limit is not None
    return _limit
