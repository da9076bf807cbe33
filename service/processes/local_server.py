"""A real server on a free loopback port, as a subprocess, for the demo, tests and benchmarks."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.processes.supervisor import end_process
from service.requests.problems import NotReady
from service.settings import Settings


@dataclass(frozen=True)
class LocalServer:
    """A running server: its URL, process id and log."""

    url: str
    pid: int
    log: Path


@contextlib.contextmanager
def local_server(
    settings: Settings,
    timeout_s: float = 240.0,
    module: str = "service.cli",
    start: Callable[..., "subprocess.Popen[bytes]"] = subprocess.Popen,
) -> Iterator[LocalServer]:
    """Start `fewpass serve` on a free port of 127.0.0.1 and wait until it is ready; on exit it and its workers have
    ended.

    The first start compiles kernels. `module` is whose `serve` is run: a test may change what the server does before it
    starts. `start` starts the process, given what `subprocess.Popen` is given. Raises NotReady, with the end of its log, if
    it does not become ready in time.
    """
    # The port is read from the log, so the log must say it.
    needed = {"host": "127.0.0.1", "port": 0, "log_format": "json", "log_level": "info"}
    settings = settings.model_copy(update=needed)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FEWPASS_")}
    # A file, not a pipe: nobody reads a pipe while the server works, and a full one would stop it.
    with tempfile.TemporaryDirectory(prefix="fewpass-server-") as directory:
        log = Path(directory) / "server.log"
        with log.open("wb") as sink:
            command = [sys.executable, "-m", module, "serve", "--port", "0"]
            process = start(command, env=environment | settings.environment(), stdout=sink, stderr=sink)
        try:
            yield LocalServer(_ready_url(process, log, timeout_s), process.pid, log)
        finally:
            end_process(process, settings.shutdown_s * 3)


def _ready_url(process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    url = None
    with httpx.Client() as client:  # one for all questions: each new one reads the certificates of the machine
        while time.monotonic() < deadline and process.poll() is None:
            url = url or _logged_url(log)
            if url is not None:
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(f"{url}/readyz").status_code == 200:
                        return url
            time.sleep(0.05)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    reason = "ended" if process.poll() is not None else f"was not ready within {timeout_s:.0f} s"
    raise NotReady(f"The server {reason}. The end of its log:\n{tail}")


def _logged_url(log: Path) -> str | None:
    # The last line may be there by half.
    for line in log.read_text(errors="replace").rpartition("\n")[0].splitlines():
        if '"serving"' in line:
            return str(json.loads(line)["url"])
    return None
