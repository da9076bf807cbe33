"""`import fewpass` in a fresh process: what it offers, how little it loads, what it says of a hidden package; and docstrings whose examples run."""

import doctest
import importlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import fewpass
from fewpass.estimators import ESTIMATORS

ROOT = Path(__file__).parent.parent.parent
OPTIONAL = ("mlflow", "shap", "sqlglot", "matplotlib", "numba", "pyarrow", "sklearn", "pandas", "numpy", "duckdb")


def run(code, cwd):
    """What a process prints; the folder is first on its path, as that of a notebook is."""
    path = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_every_name_is_there():
    for name in fewpass.__all__:
        assert getattr(fewpass, name) is not None
    assert set(dir(fewpass)) == {*fewpass.__all__, "open"}
    assert fewpass.__version__ == version("fewpass")
    assert (Path(fewpass.__file__).parent / "py.typed").exists()
    with pytest.raises(AttributeError, match="module 'fewpass' has no attribute 'KBD'; similar: KDB"):
        fewpass.KBD  # noqa: B018


def test_importing_loads_nothing_large(tmp_path):
    told = f"import sys, fewpass; print(*(set({OPTIONAL}) & set(sys.modules)))"
    done = run(told, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_loading_collects_garbage_rarely_and_leaves_the_thresholds_of_the_user(tmp_path):
    code = (
        "import gc, fewpass; gc.set_threshold(600, 9, 8); before = gc.get_stats()[0]['collections']; fewpass.KDB; "
        "print(gc.get_stats()[0]['collections'] - before, *gc.get_threshold())"
    )
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    n_collections, *thresholds = map(int, done.stdout.split())
    assert n_collections < 20, "hundreds, where every 600 new objects are looked through"
    assert thresholds == [600, 9, 8]


@pytest.mark.parametrize("package", fewpass.PACKAGES)
@pytest.mark.parametrize("form", ["{}/__init__.py", "{}.py"])
def test_a_module_of_the_user_that_hides_ours_is_named(tmp_path, package, form):
    file = tmp_path / form.format(package)
    file.parent.mkdir(exist_ok=True)
    file.touch()
    done = run("import fewpass", tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        f"fewpass.HiddenPackage: {file} hides the package '{package}' of fewpass. "
        "Rename it, or start Python from another folder."
    )


def test_a_module_that_was_imported_before_is_named(tmp_path):
    (tmp_path / "storage.py").touch()
    done = run("import storage, sys; sys.path.remove(''); import fewpass", tmp_path)
    assert "hides the package 'storage' of fewpass" in done.stderr


def test_a_folder_of_data_hides_nothing(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "income.csv").touch()
    done = run("import fewpass; print(fewpass.NB().__class__.__name__)", tmp_path)
    assert done.stdout.strip() == "NB", done.stderr


@pytest.mark.parametrize(
    ("extra", "call", "error"), [("mlflow", "log_model", "MLflowMissing"), ("shap", "explainer", "ShapMissing")]
)
def test_what_a_package_is_missing_for_is_told(extra, call, error, monkeypatch):
    monkeypatch.setitem(sys.modules, extra, None)
    ours = importlib.import_module(f"fewpass.{extra}")
    with pytest.raises(getattr(ours, error), match=rf"pip install 'fewpass\[{extra}\]'"):
        getattr(ours, call)(None)


@pytest.mark.parametrize("cls", ESTIMATORS.values())
def test_an_estimator_says_what_it_takes_and_has_and_its_example_runs(cls):
    text = cls.__doc__
    for section in ("Parameters", "Attributes", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text.replace("\n    ", "\n"), section
    example = doctest.DocTestParser().get_doctest(text, {}, cls.__name__, None, 0)
    told: list[str] = []
    assert example.examples and doctest.DocTestRunner().run(example, out=told.append).failed == 0, "".join(told)


@pytest.mark.parametrize(
    ("name", "words"),
    [("fit", "FewPassClassifier"), ("FewpassClassifier", "similar: FewPassClassifier"), ("qqq", "it has Average, ")],
)
def test_a_name_that_does_not_exist_leads_to_one_that_does(name, words):
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; .*{words}"):
        getattr(fewpass, name)
