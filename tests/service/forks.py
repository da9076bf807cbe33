"""Commands, servers and workers, each a process of its own, forked from one that has loaded modules and kernels already.

Loading takes seconds, and the tests start some hundreds of them. What they do, what they are given and what they print is as
`python -m …` has it; that these and `fewpass` start by themselves, other tests show.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from service.processes import local_server as real

PR_SET_CHILD_SUBREAPER = 36  # of Linux' sys/prctl.h
LARGEST = 2**17
_one_at_a_time = threading.Lock()


class Forked(subprocess.Popen):
    """A child of this process that runs `sys.executable -m MODULE …`."""

    def _execute_child(self, args: list[str], *given: Any) -> None:
        _executable, _preexec, _close_fds, _pass_fds, folder, environment, *_ = given
        pipes = given[9:15]
        assert args[:2] == [sys.executable, "-m"], args
        asked = {"arguments": args[2:], "environment": dict(environment or os.environ), "folder": folder or os.getcwd()}
        try:
            with open(os.devnull, "r+b") as null:
                told = [null.fileno() if fd == -1 else fd for fd in (pipes[0], pipes[3], pipes[5])]
                self.pid = _fork(json.dumps(asked).encode(), told)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


started = Forked if sys.platform == "linux" else subprocess.Popen
local_server = functools.partial(real.local_server, start=started)


def run(arguments: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess:
    """What `python -m service.cli` with these arguments says, and its exit code."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "service.cli", *arguments]
    with started(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        said = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, *said)


FEWPASS = """fewpass() {
    printf '%s\\0' "$BASHPID" "$PWD" "$@" >"$FORKS/asked"
    local code; read -r code <"$FORKS/ended"; return "$code"
}
"""


def shell(script: str, folder: Path) -> str:
    """What a script of bash says in which `fewpass` is a command of ours; it must succeed."""
    # The commands of this installation, whatever else is on the path.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FEWPASS_")}
    with tempfile.TemporaryDirectory(prefix="fewpass-shell-") as pipes:
        environment |= {"PATH": path, "FORKS": pipes}
        asked, ended = Path(pipes, "asked"), Path(pipes, "ended")
        os.mkfifo(asked)
        os.mkfifo(ended)
        server = threading.Thread(target=_serve, args=(asked, ended, environment))
        server.start()
        try:
            done = subprocess.run(
                ["bash", "-ec", FEWPASS + script], cwd=folder, env=environment, capture_output=True, text=True
            )
        finally:
            asked.write_bytes(b"")
            server.join()
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _serve(asked: Path, ended: Path, environment: dict[str, str]) -> None:
    while words := asked.read_text():
        shell, folder, *arguments = words.split("\0")[:-1]
        command = [sys.executable, "-m", "service.cli", *arguments]
        with open(f"/proc/{shell}/fd/1", "wb") as out, open(f"/proc/{shell}/fd/2", "wb") as err:
            code = started(command, cwd=folder, env=environment, stdout=out, stderr=err).wait()
        ended.write_text(f"{code}\n")


def _fork(asked: bytes, told: list[int]) -> int:
    prctl = ctypes.CDLL(None).prctl
    with _one_at_a_time:
        starter = _starter()
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # what loses its parent meanwhile becomes a child of this process
        try:
            socket.send_fds(starter, [asked], told)
            return int(starter.recv(LARGEST))
        except BaseException:  # nobody would read the answer
            _starter.cache_clear()
            starter.close()
            raise
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0)


@functools.cache
def _starter() -> socket.socket:
    """It ends with the process of the tests, which holds the other end, however that ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.service.forks", str(theirs.fileno())]
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # its threads would run beside the fork
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    atexit.register(_end_starter, ours, process)
    return ours


def _end_starter(ours: socket.socket, process: subprocess.Popen) -> None:
    ours.close()
    process.wait()


def _start_each(channel: socket.socket) -> NoReturn:
    import service.cli
    import service.jobs.worker
    import service.processes.preloaded
    import service.product.submission.job_steps
    import service.workspace  # noqa: F401
    from service.http.warm_up import warm_up
    from service.processes.forking import other_threads

    warm_up()
    assert not other_threads()
    gc.collect()
    gc.freeze()
    while True:
        asked, told, *_ = socket.recv_fds(channel, LARGEST, 3)
        if not asked:
            os._exit(0)
        reading, writing = os.pipe()
        if not (between := os.fork()):
            between = os.getpid()
            if child := os.fork():  # ends at once, so that its child is not one of this process
                os.write(writing, str(child).encode())
                os._exit(0)
            for fd in (channel.detach(), reading, writing):
                os.close(fd)
            while os.getppid() == between:
                time.sleep(0.001)
            _become(told, **json.loads(asked))
        os.waitpid(between, 0)
        child = os.read(reading, 64)
        for fd in (reading, writing, *told):
            os.close(fd)
        channel.send(child)


def _become(told: list[int], arguments: list[str], environment: dict[str, str], folder: str) -> None:
    for number, file in enumerate(told):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    module, *sys.argv[1:] = arguments
    sys.orig_argv[1:] = ["-m", *arguments]  # by which workers start anew
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    _end(code)


def _end(code: object) -> NoReturn:
    """As the interpreter does it, but without taking every object apart, which takes longer than most commands."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _start_each(socket.socket(fileno=int(sys.argv[1])))
