"""Rules of shared/STYLE.md that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("learners", "storage", "service", "fewpass")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAX_LINES = 400
MAX_ENTRIES = 15
# Names of files that stand more than once, by the reason.
REPEATED = {
    "a room of its own kind has one": "checks describe diagnostics drawing errors kernels model parameters priors queries recipes settings",
    "one resource, kept, used, served and shown": """alerts checkpoints datasets densities drift graphs holdout imputation inference
        jobs keys labels learning leases models monitoring query records regions rules schedules sessions structures training
        views what_if""",
    "one step of two kinds of model, or of their serving": "answers budget cluster compile intervals moments networks tree_kernels",
    "a common word for different things of their rooms": "columns paths streams tables",
}
# What implements a paper, and says which.
OF_PAPERS = [
    "learners/classifiers/estimates/context_tree.py::ContextTree",
    "learners/classifiers/estimates/m_estimate.py::m_estimates",
    "learners/classifiers/m_selection.py::choose_m",
    "learners/classifiers/structure.py::k_dependence",
    "learners/classifiers/structure.py::tree_augmented",
    "learners/counts/samples/holdout.py::draw",
    "learners/counts/information.py::conditional_mutual_information",
    "learners/counts/information.py::mutual_information",
    "learners/schema/discretise.py::mdl_cut_points",
]
FOUND_BY = re.compile(r"\((18|19|20)\d\d\)|https://")


def relative(path):
    return str(path.relative_to(ROOT))


def imports_of(path):
    """Names of imported modules, also of those inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_files_are_short(path):
    n_lines = len(path.read_text().splitlines())
    assert n_lines <= MAX_LINES


def test_floors_are_small():
    folders = {path.parent for path in FILES}
    in_use = folders.union(*(folder.parents for folder in folders))  # without what an older checkout left behind
    floors = {
        folder: [p for p in folder.iterdir() if p.name != "__init__.py" and (p.is_file() or p in in_use)]
        for folder in folders
    }
    full = {relative(folder): len(entries) for folder, entries in floors.items() if folder.name != "versions"}
    assert {name: n for name, n in full.items() if n > MAX_ENTRIES} == {}


def test_names_repeat_with_a_reason():
    names = Counter(path.stem for path in FILES if path.stem != "__init__")
    reasons = [name for words in REPEATED.values() for name in words.split()]
    assert sorted(name for name, n in names.items() if n > 1) == sorted(reasons)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_numba_stays_in_its_places(path):
    for name in imports_of(path):
        is_in_room = path.is_relative_to(ROOT / "learners" / "kernels")
        if name.split(".")[0] in ("numba", "llvmlite"):
            assert is_in_room
        if name.startswith(("learners.kernels.jit", "learners.kernels.simd")) and name not in (
            "learners.kernels.jit.noticing_compilation",
            "learners.kernels.jit.load_registries",
        ):
            assert is_in_room or path.name.endswith("kernels.py")
        if name.split(".")[0] == "duckdb":
            assert path.is_relative_to(ROOT / "storage")
        if name.split(".")[0] == "fastapi":
            assert path.is_relative_to(ROOT / "service")


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_files_say_what_they_are_and_open_nothing_on_import(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree) or not tree.body, "a module begins with a docstring"
    for node in tree.body:
        assert not (isinstance(node, ast.With | ast.For)), "nothing is opened or walked at import"


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_everything_public_has_a_docstring(path):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    public = [node for node in ast.parse(path.read_text()).body if isinstance(node, kinds) and node.name[0] != "_"]
    assert not [node.name for node in public if not ast.get_docstring(node)]


def documented(tree):
    """Docstrings of a file: its own, and those of classes and functions."""
    kinds = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [text for node in ast.walk(tree) if isinstance(node, kinds) and (text := ast.get_docstring(node))]


@pytest.mark.parametrize("path", [path for path in FILES if path.is_relative_to(ROOT / "learners")], ids=relative)
def test_references_can_be_found(path):
    """A paper has its year, a format its address."""
    for text in documented(ast.parse(path.read_text())):
        if "References\n----------" in text:
            assert FOUND_BY.search(text.split("References\n----------")[1]), text


@pytest.mark.parametrize("name", OF_PAPERS)
def test_what_implements_a_paper_names_it(name):
    path, member = name.split("::")
    tree = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.ClassDef)
    (found,) = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == member]
    assert "References\n----------" in ast.get_docstring(found)


def test_no_test_is_skipped_on_the_quiet():
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("pytest.skip", "pytest.mark.skip"), relative(path)


# Raised without a message, by tests or by those who hang up.
SILENT = {
    "BrokenProcessPool",
    "Cancelled",
    "KeyboardInterrupt",
    "OSError",
    "Refused",
    "Stop",
    "StopIteration",
}
SILENT |= {"ZeroDivisionError", "httpx.HTTPError"}


def expected_errors(tree):
    """(call of `pytest.raises`, whether the error gets a name, by which the test looks at it)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.raises":
                    yield call, item.optional_vars is not None


def test_every_expected_error_says_what_it_must_say():
    """`pytest.raises` names a message: an error of the same class for another reason is another error."""
    bare = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for call, is_named in expected_errors(ast.parse(path.read_text())):
            expected = ast.unparse(call.args[0])
            plain = isinstance(call.args[0], ast.Name | ast.Attribute) and expected not in SILENT | {"error"}
            if plain and not is_named and "match" not in {keyword.arg for keyword in call.keywords}:
                bare.append(f"{relative(path)}:{call.lineno}")
    assert not bare


def test_commands_load_nothing_large_that_they_do_not_need():
    """Each takes a tenth to a whole second to import, which every command would wait for."""
    large = (
        "dbos",
        "psycopg",
        "matplotlib",
        "xgboost",
        "sklearn",
        "pandas",
        "distributed",
        "fastapi",
        "uvicorn",
        "httpx",
    )
    told = f"import sys, service.cli, service.workspace; print(*(set({large}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
