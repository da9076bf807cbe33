"""Rules of shared/STYLE.md that no linter knows."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("learners", "storage", "service")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAX_LINES = 400
# One sampler whose kernels call each other; it may not grow further.
LONGER = {"learners/classifiers/hdp_kernels.py": 600}
# What implements a paper, and says which.
OF_PAPERS = [
    "learners.classifiers.context_tree.ContextTree",
    "learners.classifiers.m_estimate.m_estimates",
    "learners.classifiers.recipes.choose_m",
    "learners.classifiers.structure.k_dependence",
    "learners.classifiers.structure.tree_augmented",
    "learners.counts.holdout.HoldOut.draw",
    "learners.counts.information.conditional_mutual_information",
    "learners.counts.information.mutual_information",
    "learners.schema.discretise.mdl_cut_points",
]


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
    assert n_lines <= LONGER.get(relative(path), MAX_LINES)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_numba_stays_in_its_places(path):
    for name in imports_of(path):
        if name.split(".")[0] in ("numba", "llvmlite"):
            assert relative(path) == "learners/jit.py"
        if name.startswith("learners.jit") and name != "learners.jit.noticing_compilation":
            assert path.name.endswith("kernels.py")
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


def public_members():
    for package_name in ("learners.schema", "learners.passes", "learners.counts", "learners.classifiers"):
        package = importlib.import_module(package_name)
        for entry in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package_name}.{entry.name}")
            for name, member in vars(module).items():
                if name.startswith("_") or getattr(member, "__module__", None) != module.__name__:
                    continue
                if inspect.isclass(member) or inspect.isfunction(member):
                    yield f"{module.__name__}.{name}", member


def test_everything_public_has_a_docstring():
    missing = [name for name, member in public_members() if not inspect.getdoc(member)]
    assert not missing


@pytest.mark.parametrize("name", OF_PAPERS)
def test_what_implements_a_paper_names_it(name):
    module_name, *path = name.rsplit(".", 2 if name.split(".")[-2][0].isupper() else 1)
    member = importlib.import_module(module_name)
    for part in path:
        member = getattr(member, part)
    text = inspect.getdoc(member)
    assert "References\n----------" in text
    assert any(year in text.split("References")[1] for year in ("(1993)", "(1996)", "(1997)", "(2018)"))


def test_no_test_is_skipped_on_the_quiet():
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("pytest.skip", "pytest.mark.skip"), relative(path)


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
