"""Commands of the command line, each a process of its own, forked from one that has imported it all already.

Importing takes more than a second, and the tests run more than a hundred commands. What the commands do, what they are
given and what they print is as `python -m service.cli` has it; that this and `fewpass` start by themselves, other tests show.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import NoReturn


def run(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess:
    """What `python -m service.cli` with these arguments says, and its exit code."""
    with tempfile.TemporaryDirectory(prefix="fewpass-command-") as folder:
        told = [Path(folder) / name for name in ("stdout", "stderr")]
        asked = {
            "arguments": arguments,
            "environment": environment,
            "folder": os.getcwd(),
            "told": list(map(str, told)),
        }
        code = int(_ask(json.dumps(asked)))
        return subprocess.CompletedProcess(arguments, code, *(path.read_text() for path in told))


def _ask(line: str) -> str:
    process = _starter()
    try:
        process.stdin.write(line + "\n")
        return process.stdout.readline()
    except BaseException:  # nobody would read the answer
        _starter.cache_clear()
        process.kill()
        raise


@functools.cache
def _starter() -> subprocess.Popen:
    """It ends with the process of the tests, which holds the other end of its pipe."""
    command = [sys.executable, "-m", "tests.service.commands"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # its threads would run beside the fork
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True, bufsize=1)


def _start_each() -> None:
    import service.cli
    import service.processes.preloaded
    import service.workspace  # noqa: F401
    from service.processes.forking import other_threads

    assert not other_threads()
    for line in sys.stdin:
        process = os.fork()
        if not process:
            _become(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


def _become(arguments: list[str], environment: dict[str, str], folder: str, told: list[str]) -> None:
    files = [os.open(os.devnull, os.O_RDONLY), *(os.open(path, os.O_WRONLY | os.O_CREAT) for path in told)]
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    code: object = 0
    try:
        runpy.run_module("service.cli", run_name="__main__", alter_sys=True)
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
    _start_each()
