"""Commands, servers and workers, each a process of its own, forked from one that has loaded modules and kernels already.

Loading takes seconds, and the tests start some hundreds of them. What they do, what they are given and what they print is as
`python -m …` has it; that these and `fewpass` start by themselves, other tests show.
"""

import atexit
import functools
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from service.processes import local_server as real

FEWPASS = """fewpass() {
    printf '%s\\0' "$BASHPID" "$PWD" "$@" >"$FORKS/asked"
    local code; read -r code <"$FORKS/ended"; return "$code"
}
"""
_one_at_a_time = threading.Lock()


class Forked:
    """What tests need of `subprocess.Popen`, for `sys.executable -m MODULE …` that prints to the ends of files with names."""

    def __init__(self, command, stdout, stderr, env=None, cwd="."):
        assert command[:2] == [sys.executable, "-m"], command
        self.args, self.returncode = command, None
        environment, files = dict(env or os.environ), [stdout.name, stderr.name]
        self.pid = _ask(command=command, environment=environment, folder=os.path.abspath(cwd), files=files)

    def poll(self):
        if self.returncode is None:
            self.returncode = _ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout=float("inf")):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    terminate = functools.partialmethod(send_signal, signal.SIGTERM)
    kill = functools.partialmethod(send_signal, signal.SIGKILL)


started = Forked if sys.platform == "linux" else subprocess.Popen
local_server = functools.partial(real.local_server, start=started)


def run(arguments, environment):
    """What `python -m service.cli` with these arguments says, and its exit code."""
    command = [sys.executable, "-m", "service.cli", *arguments]
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        code = started(command, stdout=out, stderr=err, env=environment).wait()
        said = [Path(file.name).read_text() for file in (out, err)]
    return subprocess.CompletedProcess(arguments, code, *said)


def shell(script, folder):
    """What a script of bash says in which `fewpass` is a command of ours; it must succeed."""
    # The commands of this installation, whatever else is on the path.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FEWPASS_")}
    with tempfile.TemporaryDirectory(prefix="fewpass-shell-") as pipes:
        environment |= {"PATH": path, "FORKS": pipes}
        os.mkfifo(asked := Path(pipes, "asked"))
        os.mkfifo(ended := Path(pipes, "ended"))
        threading.Thread(target=_serve, args=(asked, ended, environment), daemon=True).start()
        bash = ["bash", "-ec", FEWPASS + script]
        done = subprocess.run(bash, cwd=folder, env=environment, capture_output=True, text=True)
        asked.write_bytes(b"")  # ends the thread
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _serve(asked, ended, environment):
    while words := asked.read_text():
        bash, folder, *arguments = words.split("\0")[:-1]
        command = [sys.executable, "-m", "service.cli", *arguments]
        with open(f"/proc/{bash}/fd/1", "wb") as out, open(f"/proc/{bash}/fd/2", "wb") as err:
            code = started(command, stdout=out, stderr=err, env=environment, cwd=folder).wait()
        ended.write_text(f"{code}\n")


def _ask(**question):
    with _one_at_a_time:
        starter = _starter()
        try:
            print(json.dumps(question), file=starter.stdin, flush=True)
            return json.loads(starter.stdout.readline())
        except BaseException:  # nobody would read the answer
            _starter.cache_clear()
            starter.stdin.close()
            raise


@functools.cache
def _starter():
    """It ends, and what it started with it, when its pipe is closed: at the latest as the process of the tests ends."""
    command = [sys.executable, "-m", "tests.service.forks"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # its threads would run beside the fork
    pipe, root = subprocess.PIPE, Path(__file__).parents[2]
    process = subprocess.Popen(  # out of reach of Ctrl-C, after which fixtures still ask it
        command, cwd=root, env=environment, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    )
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # which comes first
    return process


def _start_each():
    import service.cli
    import service.jobs.worker
    import service.processes.preloaded
    import service.product.submission.job_steps  # noqa: F401
    from service.http.warm_up import warm_up_kernels
    from service.processes.forking import threads_lost_by_fork

    warm_up_kernels()
    assert not threads_lost_by_fork()
    gc.collect()
    gc.freeze()
    for question in map(json.loads, sys.stdin):
        if "poll" in question:
            has_ended, status = os.waitpid(question["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if has_ended else None
        elif not (answer := os.fork()):
            _become(**question)
            return
        print(json.dumps(answer), flush=True)
    for child in psutil.Process().children():
        child.kill()


def _become(command, environment, folder, files):
    global exit_code
    exit_code = 1
    with open(os.devnull) as null, open(files[0], "ab", 0) as out, open(files[1], "ab", 0) as err:
        for number, file in enumerate((null, out, err)):
            os.dup2(file.fileno(), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = command[3:]
    sys.orig_argv[1:] = command[1:]  # by which workers start anew
    try:
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    except SystemExit as error:
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    exit_code = 0


def _end():
    """End without taking every object apart, which takes longer than most commands."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


if __name__ == "__main__":
    exit_code = 0
    atexit.register(_end)  # what is registered first is called last
    _start_each()
