"""The help of every command, kept as text in `help.txt`: a change of it is seen, and read, as a diff.

`python -m tests.service.cli.test_help` writes it.
"""

from pathlib import Path

import click
import typer.main

from service.cli import COMMANDS, app
from service.cli.examples import EXAMPLES
from tests.support.cli import commands, parse

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
            lines += [f"  | {command.epilog}"] if command.epilog else []
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


def test_the_help_of_every_command_ends_with_an_example_that_parses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("income-2.tar", "job.json", "receipt.json", "new.parquet", "labels.parquet", "backups/monday/x"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    of_all = {
        name.removeprefix("fewpass "): command for name, command in commands(typer.main.get_command(app), "fewpass")
    }
    shown = {name: command.epilog for name, command in of_all.items() if name != "fewpass" and not command.hidden}
    assert shown == {name: f"Example: {line}" for name, line in EXAMPLES.items()}
    for line in EXAMPLES.values():
        parse(line)


def test_the_list_of_commands_says_what_each_says_itself():
    group = typer.main.get_command(app)
    for name, entry in COMMANDS.items():
        assert entry.help == " ".join((group.commands[name].help or "").split("\n\n")[0].split()), name
        assert entry.panel == group.commands[name].rich_help_panel, name


if __name__ == "__main__":
    KEPT.write_text(help_text())
