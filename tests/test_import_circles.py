"""No module needs itself, however the import is written: inside functions and under TYPE_CHECKING count too."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("learners", "storage")


def modules(packages):
    """Name -> file of every module."""
    found = {}
    for package in packages:
        for file in (ROOT / package).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(text, known):
    """The known modules that a file names in any import statement."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for name in node.names:
                below = f"{node.module}.{name.name}"
                yield below if below in known else node.module


def circle(graph):
    """The modules of a circle, or None."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_module_imports_itself_by_way_of_others():
    known = modules(PACKAGES)
    graph = {name: set(imports(file.read_text(), known)) - {name} for name, file in known.items()}
    assert sum(map(len, graph.values())) > len(graph), "imports are seen at all"
    assert circle(graph) is None, " → ".join(circle(graph))


@pytest.mark.parametrize(
    "text",
    [
        "from b import x",
        "import b",
        "def f():\n    from b import x",
        "if TYPE_CHECKING:\n    from b import x",
    ],
)
def test_a_circle_is_seen_however_the_import_is_written(text):
    known = {"a": None, "b": None}
    assert circle({"a": set(imports(text, known)), "b": set(imports("import a", known))})
