"""Memory limit for the statistics of this process, and the folder for counts that exceed it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

from learners.errors import InvalidParameter

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
MIN_BYTES = 64 << 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
KEPT_BYTES, MAPPED_BYTES = 16 << 20, 4 << 20
WORTH_RELEASING_BYTES = 16 << 20


@dataclass(frozen=True)
class MemoryLimit:
    """Limit on the counts that passes keep in memory; counts beyond it are written to sorted files."""

    n_bytes: int
    directory: Path  # of the files, which are removed with the statistics that wrote them


class TemporaryFolder:
    """A temporary folder that is removed when this object is garbage-collected."""

    def __init__(self, parent: Path, prefix: str = "fewpass-") -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self.remove = weakref.finalize(self, shutil.rmtree, str(self.path), ignore_errors=True)


def parse_memory_size(text: str) -> int:
    """Parse a memory size such as "512MiB", "4GB" or "1.5g" to bytes. Raises InvalidParameter."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    n_bytes = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if n_bytes < MIN_BYTES:
        raise InvalidParameter("memory", text, "a number of bytes such as 512MiB or 4GiB, at least 64MiB")
    return n_bytes


def machine_memory_bytes() -> int:
    """Return the memory of this machine, or of its container, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


_limit: MemoryLimit | None = None
_released_at = 0  # the memory that the process held when it was last released


def set_memory_limit(n_bytes: int, directory: Path | str | None = None) -> None:
    """Set the memory limit of this process."""
    global _limit  # noqa: PLW0603 — memory belongs to the process, whoever asks for it
    _limit = MemoryLimit(n_bytes, Path(directory or tempfile.gettempdir()))


def memory_limit() -> MemoryLimit:
    """Return the memory limit: the one that was set, else FEWPASS_MEMORY, or a quarter of the machine's memory."""
    if _limit is None or not _limit.directory.is_dir():  # the workspace whose folder it was may be closed
        text = os.environ.get("FEWPASS_MEMORY")
        set_memory_limit(parse_memory_size(text) if text else machine_memory_bytes() // 4)
    assert _limit is not None
    return _limit


def configure_memory_allocators() -> bool:
    """Make this process return freed memory: large arrays immediately, and Arrow buffers without a pool.

    By default glibc keeps freed arrays of up to 32 MiB per thread, and Arrow's allocator keeps the memory of the
    largest batches. Returns True if glibc accepted the settings, False for another C library.
    """
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES) and mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES))


def release_free_memory() -> None:
    """Return freed memory to the operating system; allocators otherwise keep what one large request or pass used.

    Does nothing while the process has grown by less than `WORTH_RELEASING_BYTES` since it was last released: the search takes
    milliseconds, and the pages are soon wanted again.
    """
    global _released_at  # noqa: PLW0603 — memory belongs to the process
    before = resident_bytes()
    if before is not None and before - _released_at < WORTH_RELEASING_BYTES:
        _released_at = min(_released_at, before)
        return
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
    _released_at = resident_bytes() or 0


def resident_bytes() -> int | None:
    """Return the memory that this process holds, or None where the system has no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 — a tenth of the time of Path
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
