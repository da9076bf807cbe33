"""The help of every command, kept as text in `help.txt`: a change of it is seen, and read, as a diff.

`python -m tests.service.cli.test_help` writes it.
"""

from pathlib import Path

import click
import typer.main

from service.cli import COMMANDS, app
from tests.support.cli import commands

KEPT = Path(__file__).with_name("help.txt")


def option_line(parameter: click.Parameter) -> str:
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    words = " ".join(str(getattr(parameter, "help", None) or "").split())
    return f"  {names}" + (f": {words}" if words else "")


def help_text() -> str:
    lines: list[str] = []
    for name, command in commands(typer.main.get_command(app), "fewpass"):
        if not command.hidden:
            lines += [name, *(f"  | {line}".rstrip() for line in (command.help or "").strip().splitlines())]
            lines += [option_line(one) for one in command.params if not getattr(one, "hidden", False)] + [""]
    return "\n".join(lines)


def test_the_help_of_every_command_is_the_kept_one():
    assert help_text() == KEPT.read_text(), "read the difference; python -m tests.service.cli.test_help writes it"


def test_every_command_and_option_says_what_it_does():
    for name, command in commands(typer.main.get_command(app), "fewpass"):
        assert command.hidden or command.help, name
        for one in command.params:
            if one.param_type_name == "option" and not one.hidden:
                assert one.help, (name, one.opts)


def test_the_list_of_commands_says_what_each_says_itself():
    group = typer.main.get_command(app)
    for name, entry in COMMANDS.items():
        assert entry.help == " ".join((group.commands[name].help or "").split("\n\n")[0].split()), name
        assert entry.panel == group.commands[name].rich_help_panel, name


if __name__ == "__main__":
    KEPT.write_text(help_text())
