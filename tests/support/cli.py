"""Commands as a user gives them, and what they say."""

import json
import os
import re
import shlex
from collections.abc import Iterator

import click
import typer.main

from service.cli import app
from tests.service import forks


def fewpass(*arguments, workspace, code=0):
    done = forks.run([*map(str, arguments)], os.environ | {"FEWPASS_WORKSPACE": str(workspace)})
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def said(*arguments, workspace, code=0):
    """What a command says; its errors where an exit code is expected."""
    done = fewpass(*arguments, workspace=workspace, code=code)
    return done.stderr if code else done.stdout


def on_a_line(*arguments, **more):
    """The same, wherever the terminal breaks it."""
    return " ".join(said(*arguments, **more).split())


def as_json(*arguments, workspace):
    """What a command says with --json."""
    return json.loads(fewpass(*arguments, "--json", workspace=workspace).stdout)


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for word, below in sorted(getattr(command, "commands", {}).items()):
        yield from commands(below, f"{name} {word}")


NETWORK = """network weather {
}
variable rain { type discrete [ 2 ] { no, yes }; }
variable lawn { type discrete [ 2 ] { dry, wet }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( lawn | rain ) { (no) 0.9, 0.1; (yes) 0.01, 0.99; }
"""


def parse(line):
    """Parse each command of a line as the command line would, and run none."""
    for part in re.split(r" && | \|\| | ; |; ", line):
        name, *arguments = shlex.split(part, comments=True)
        if name == "fewpass":
            command, words = typer.main.get_command(app), []
            while arguments and arguments[0] in getattr(command, "commands", {}):
                words.append(arguments.pop(0))
                command = command.commands[words[-1]]
            command.make_context(" ".join(words), arguments or ["--help"], resilient_parsing=not arguments)
