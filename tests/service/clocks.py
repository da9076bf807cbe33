"""Clocks of servers that are set while these run, apart from the clock of the machine."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

needs_cc = pytest.mark.skipif(
    shutil.which("cc") is None or not sys.platform.startswith("linux"),
    reason="setting the clock of one server needs Linux and a C compiler (cc)",
)


class Wall:
    """The clock on the wall of every process that is started from now on."""

    def __init__(self, path):
        self.path = path
        self.set(0)

    def set(self, seconds):
        """So much before or after what it really is."""
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))
        self.ahead = timedelta(seconds=seconds)

    def now(self):
        return datetime.now(UTC) + self.ahead


def compiled(folder):
    """The library that servers preload."""
    library = folder / "jumping_clock.so"
    source = Path(__file__).parent / "jobs" / "jumping_clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
