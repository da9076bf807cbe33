"""Reference pages that the code itself writes: Python from docstrings, commands from typer, routes from OpenAPI, settings."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main
from typer.core import TyperGroup

import fewpass
from service.cli import app as command_line
from service.http.app import create_app
from service.settings import Settings

Document = Mapping[str, Any]
# What the library offers beneath its front door: the title of a section, and what stands in it.
BENEATH = {
    "Circuits in memory": (
        "circuits.evaluation.evaluate.log_values",
        "circuits.queries.array_answers.marginals",
        "circuits.queries.array_answers.moments",
        "circuits.queries.array_answers.conditional",
        "circuits.queries.array_answers.class_posterior",
        "circuits.queries.array_answers.sample",
        "circuits.em.em.batch_em",
    ),
}


def python_page() -> Iterator[str]:
    """What `fewpass` exports, by name, and what stands beneath."""
    yield "# Python\n\nEverything that `fewpass` exports.\n"
    for name in sorted(set(fewpass.__all__) - {"__version__"}):
        yield _member(name, getattr(fewpass, name))
    for title, paths in BENEATH.items():
        yield f"# {title}\n"
        for path in paths:
            module, _, name = path.rpartition(".")
            yield _member(path, getattr(import_module(f"learners.{module}"), name))


def _member(title: str, member: Any) -> str:
    kind = "autoclass" if isinstance(member, type) else "autofunction"
    options = "\n   :members:\n   :inherited-members: Exception, tuple" if isinstance(member, type) else ""
    where = f"{member.__module__}.{member.__name__}"
    return f"## {title}\n\n```{{eval-rst}}\n.. {kind}:: {where}{options}\n```\n"


def commands_page() -> Iterator[str]:
    """Every command with its options."""
    yield "# Every command and option\n\n`fewpass COMMAND --help` says the same in a terminal.\n"
    group = typer.main.get_command(command_line)
    yield from _commands(group, "fewpass")


def _commands(group: Any, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        title = f"{path} {name}"
        yield f"## {title}\n\n{(command.help or '').strip()}\n"
        rows = [_parameter(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        if rows:
            yield "| option | what it is | default |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
        if isinstance(command, TyperGroup):
            yield from _commands(command, title)


def _parameter(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    default = "" if parameter.default in (None, False, ...) or callable(parameter.default) else f"`{parameter.default}`"
    return f"| {names} | {_cell(getattr(parameter, 'help', None) or '')} | {default} |"


def rest_page() -> Iterator[str]:
    """Every route with its parameters and shapes, from the OpenAPI document."""
    document = create_app(Settings(workspace=Path("unused"))).openapi()
    yield "# Every route\n\nA running server shows the same at `/docs`, and as OpenAPI at `/openapi.json`.\n"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"## {method.upper()} {path}\n\n**{operation.get('summary', '')}.** {operation.get('description', '')}\n"
            if rows := [_route_parameter(parameter) for parameter in operation.get("parameters", [])]:
                yield "| parameter | in | type | |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
            if body := operation.get("requestBody"):
                yield f"Body: {_shapes(body['content'])}\n"
            for status, answer in operation.get("responses", {}).items():
                if status.startswith("2"):
                    yield f"Answer {status}: {_shapes(answer.get('content', {})) or 'no body'}\n"
    yield "# Shapes\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"## {name}\n\n{schema.get('description', '')}\n"
        rows = [
            f"| `{member}` | {_type(shape)} | {_cell(shape.get('description', ''))} |"
            for member, shape in schema.get("properties", {}).items()
        ]
        if rows:
            yield "| member | type | |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def _route_parameter(parameter: Document) -> str:
    description = _cell(parameter.get("description", ""))
    return f"| `{parameter['name']}` | {parameter['in']} | {_type(parameter.get('schema', {}))} | {description} |"


def _shapes(content: Document) -> str:
    return ", ".join(
        f"`{media_type}` {_type(shape.get('schema', {}))}".strip() for media_type, shape in content.items()
    )


def _type(schema: Document) -> str:
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for many in ("anyOf", "oneOf", "allOf"):
        if many in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[many]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("type", ""))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def settings_page() -> Iterator[str]:
    """Every setting of the service with its default."""
    yield """# Every setting

Each setting is an environment variable; options of the command line override it. Lists are JSON:
`FEWPASS_DATA_ROOTS='["/data"]'`. The server refuses to start on an invalid value. `fewpass serve` warns of a
`FEWPASS_` variable that is not a setting.

| variable | default | meaning |
| --- | --- | --- |"""
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None or field.default == () else f"`{field.default}`"
        yield f"| `FEWPASS_{name.upper()}` | {default} | {_cell(field.description or '')} |"


def write_pages(folder: Path) -> None:
    """Write the pages to a folder, which git ignores."""
    folder.mkdir(exist_ok=True)
    pages = {"python": python_page(), "commands": commands_page(), "rest": rest_page(), "settings": settings_page()}
    for page, lines in pages.items():
        text = "\n".join(lines)
        path = folder / f"{page}.md"
        if not path.exists() or path.read_text() != text:  # Sphinx reads anew what has changed
            path.write_text(text)
