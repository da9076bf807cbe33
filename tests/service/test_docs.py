"""Every route, setting, command and problem status is documented."""

import re
from pathlib import Path

import typer.main

from service.cli import app as command_line
from service.http.app import create_app
from service.requests import problems
from service.settings import Settings

ROOT = Path(__file__).parents[2]
SERVICE = (ROOT / "docs/reference/service.md").read_text()
CLI = (ROOT / "docs/reference/cli.md").read_text()


def test_settings_say_what_they_are():
    assert not [name for name, field in Settings.model_fields.items() if not field.description]


def test_routes():
    for path, operations in create_app(Settings(workspace=Path("unused"))).openapi()["paths"].items():
        for method in operations:
            pattern = r"\{[^}]*\}".join(map(re.escape, re.split(r"\{[^}]*\}", f"{method.upper()} {path}")))
            assert re.search(f"`{pattern}", SERVICE), f"{method.upper()} {path}"


def test_statuses():
    for status in problems.STATUSES:
        assert f"| {status} |" in SERVICE, status


def test_commands():
    group = typer.main.get_command(command_line)
    for name, command in group.commands.items():
        assert f"fewpass {name}" in CLI
        for subcommand in getattr(command, "commands", {}):
            assert f"fewpass {name} {subcommand}" in CLI
