"""Processes that tests start, kill and wait for: a process may end between any two looks at it."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TypeVar

import psutil

Found = TypeVar("Found")


def wait_for(look, seconds=240):
    """The first answer of `look` that is true; long enough for a machine that does much else."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)
    return found


def runs(pid):
    """Whether it still does anything: neither gone nor a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ended(pids):
    return not any(map(runs, pids))


def children_of(pid, argument=""):
    """All below it that run, those with `argument` on their command lines."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if not argument or argument in child.cmdline():
                found.append(child)
    return found


def whole_lines(log):
    """The lines of a file that is being written; the last one may be there by half, and is left out then."""
    return log.read_text(errors="replace").rpartition("\n")[0].splitlines()


def meet(own, other):
    """Leave a file, and wait for that of another task: one that runs at the same time. Here, where nothing else is imported."""
    own.touch()
    with contextlib.suppress(AssertionError):
        wait_for(other.is_file, 30)
    own.write_text("met" if other.is_file() else "alone")


@contextlib.contextmanager
def in_threads(work, n_threads):
    """So many threads that call `work` until it answers False, or the block is left; waits for them."""
    stop = threading.Event()

    def run():
        while not stop.is_set() and work() is not False:
            pass

    threads = [threading.Thread(target=run) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class Cluster:
    """A PostgreSQL server in `folder`, on a free loopback port, that can be stopped without a warning and started again."""

    def __init__(self, folder, options):
        self.folder, self.data, self.options = folder, folder / "data", options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"postgresql://fewpass:secret@127.0.0.1:{self.port}/postgres"
        self.socket_url = f"postgresql://fewpass@/postgres?host={folder}&port={self.port}"
        # PostgreSQL refuses to run as root.
        self.user = {"user": "postgres"} if os.getuid() == 0 else {}
        if self.user:
            shutil.chown(folder, "postgres")
        self.run("initdb", "-U", "fewpass", "-A", "trust", "--no-sync", "-E", "UTF8")
        self.start()

    def run(self, *command):
        whole = [command[0], "-D", str(self.data), *command[1:]]
        done = subprocess.run(whole, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **self.user)
        assert done.returncode == 0, done.stderr

    @property
    def is_running(self):
        return (self.data / "postmaster.pid").exists()

    def start(self):
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} {self.options}"
        )
        self.run("pg_ctl", "start", "-w", "-l", str(self.folder / "log"), "-o", options)

    def stop(self):
        """As a crash: connections are cut in the middle of what they do, and nothing is written down first."""
        self.run("pg_ctl", "stop", "-m", "immediate", "-w")


HAS_POSTGRES = all(map(shutil.which, ("initdb", "pg_ctl", "postgres")))
NO_POSTGRES = "PostgreSQL (initdb, pg_ctl and postgres on the PATH) is not installed"


@contextlib.contextmanager
def postgres_cluster(options=""):
    """In a folder whose path is short, as that of a socket must be; stopped and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="fewpass-pg-", ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder), options)
        yield made
        if made.is_running:
            made.stop()


def record(facts):
    """Print what a long run has found, and add it to the file that FEWPASS_TEST_RECORD names."""
    print(line := json.dumps(facts))
    if name := os.environ.get("FEWPASS_TEST_RECORD"):
        with Path(name).open("a") as file:
            file.write(line + "\n")
