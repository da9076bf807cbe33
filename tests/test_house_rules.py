"""Rules of shared/STYLE.md that no linter knows."""

import ast
import functools
import gc
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from learners.registry.model_kinds import KINDS

ROOT = Path(__file__).parent.parent
PACKAGES = ("learners", "storage", "service", "fewpass")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
# Names of files that stand more than once, by the reason.
REPEATED = {
    "a room of its own kind has one": "checks errors kernels model parameters queries recipes",
    "one resource, kept, used, served and shown": "audit datasets jobs later_rows models query receipts schedules",
}
# What implements a paper, and says which.
OF_PAPERS = {
    "classifiers/estimates/context_tree.py": "ContextTree m_estimates",
    "classifiers/m_selection.py": "select_m_by_hold_out",
    "classifiers/structure.py": "k_dependence_structure tree_augmented_structure",
    "counts/row_samples.py": "draw",
    "counts/information.py": "conditional_mutual_information mutual_information",
    "schema/discretise.py": "mdl_cut_points",
}
FOUND_BY = re.compile(r"\((18|19|20)\d\d\)|https://")
# Where alone a library may be imported.
PLACES = {"numba": "learners/kernels", "llvmlite": "learners/kernels", "duckdb": "storage", "fastapi": "service"}
KERNEL_TOOLS = ("learners.kernels.jit", "learners.kernels.intrinsics", "learners.kernels.simd")
# For others than kernels.
OF_JIT = {f"learners.kernels.jit.{name}" for name in ("notify_on_kernel_compilation", "load_numba_registries")}
MEMBERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Participles that say nothing of what a variable holds: it has the field's noun.
EMPTY_WORDS = {"told", "asked", "made", "taken", "meant", "said", "wanted"}


# Where alone a class of models is named outside its own room, by the reason.
MODELS_BY_NAME = {
    ("service/http/warm_up.py", "LookupModel"): "compiles the kernels of this class before a request needs them",
    ("learners/monitoring/count_layout.py", "LookupModel"): "counts the families of this class",
    ("learners/estimators/circuits.py", "CircuitModel"): "an estimator of this class",
    ("learners/estimators/structure_posterior.py", "OrderModel"): "an estimator of this class",
}
ANSWERS_QUERIES = "CircuitModel"  # a type of the product, too: whatever answers queries is one, see `Kind.circuit`


def relative(path):
    return str(path.relative_to(ROOT))


@functools.cache
def tree_of(path):
    """What a file says."""
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path):
    """All that a file says, from the outside in; several tests look at it."""
    return list(ast.walk(tree_of(path)))


@pytest.fixture(scope="module", autouse=True)
def nodes_are_no_garbage():
    """Over a million nodes, none of which is garbage before the last test: to look for some took longer than to parse the files."""
    gc.disable()
    yield
    for kept in (imports_of, nodes_of, tree_of):
        kept.cache_clear()
    gc.enable()


@functools.cache
def imports_of(path):
    """Names of imported modules, also of those inside functions and under TYPE_CHECKING."""
    found = []
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def test_names_repeat_with_a_reason():
    names = Counter(path.stem for path in FILES if path.stem != "__init__")
    reasons = [name for words in REPEATED.values() for name in words.split()]
    assert sorted(name for name, n in names.items() if n > 1) == sorted(reasons)


def test_libraries_stay_in_their_places():
    out_of_place = []
    for path in FILES:
        is_kernel = path.is_relative_to(ROOT / "learners" / "kernels") or path.name.endswith("kernels.py")
        for name in imports_of(path):
            place = PLACES.get(name.split(".")[0])
            is_jit = name.startswith(KERNEL_TOOLS) and name not in OF_JIT
            if (place and not path.is_relative_to(ROOT / place)) or (is_jit and not is_kernel):
                out_of_place.append((relative(path), name))
    assert out_of_place == []


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circle(files):
    """The modules of a circle of imports among the files of these modules, or None."""
    graph = {
        module: {name if name in files else name.rpartition(".")[0] for name in imports_of(path)} & files.keys()
        for module, path in files.items()
    }
    assert any(graph.values()), "imports are seen at all"
    try:
        TopologicalSorter({module: known - {module} for module, known in graph.items()}).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_module_imports_itself_by_way_of_others():
    assert circle({module_name(path): path for path in FILES}) is None


@pytest.mark.parametrize("within", ["{}", "def f():\n    {}", "if TYPE_CHECKING:\n    {}"])
@pytest.mark.parametrize("text", ["from b import x", "import b"])
def test_a_circle_is_seen_however_the_import_is_written(text, within, tmp_path):
    files = {name: tmp_path / name for name in "ab"}
    files["a"].write_text(within.format(text))
    files["b"].write_text("import a")
    assert circle(files)


def test_the_product_names_no_kind_of_model():
    """It asks what a model can do (`learners.registry.kind`); a new kind needs no line in it."""
    classes = {kind.model.__name__ for kind in KINDS.values()} | {"ArcModel"}
    product = [path for path in FILES if path.relative_to(ROOT).parts[0] in ("service", "fewpass")]
    imported = {(relative(path), name.rpartition(".")[2]) for path in product for name in imports_of(path)}
    named = {(path, name) for path, name in imported if name in classes and (path, name) not in MODELS_BY_NAME}
    assert {(path, name) for path, name in named if name != ANSWERS_QUERIES} == set()
    asked = [
        relative(path)
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        if classes & {getattr(each, "id", "") for each in ast.walk(node.args[1])}
    ]
    assert set(asked) <= {path for path, _ in MODELS_BY_NAME}


def test_one_place_knows_which_codes_stand_for_null():
    """Others ask for `first_code` (`learners.schema.presence`)."""
    offsets = [
        relative(path)
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "int" and len(node.args) == 1
        if isinstance(node.args[0], ast.Attribute) and node.args[0].attr == "has_missing"
    ]
    assert set(offsets) <= {"learners/schema/presence.py", "learners/ensembles/correction/forest.py"}


def test_files_say_what_they_are_and_open_nothing_on_import():
    for path in FILES:
        tree = tree_of(path)
        assert ast.get_docstring(tree) or not tree.body, f"{relative(path)} begins with a docstring"
        for node in tree.body:
            assert not isinstance(node, ast.With | ast.For), f"{relative(path)} opens or walks nothing at import"


def test_everything_public_has_a_docstring():
    members = [(path, node) for path in FILES for node in tree_of(path).body if isinstance(node, MEMBERS)]
    bare = [(path, node.name) for path, node in members if node.name[0] != "_" and not ast.get_docstring(node)]
    assert bare == []


def documented(tree):
    """Docstrings of a file: its own, and those of classes and functions."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Module, *MEMBERS))]
    return [text for node in nodes if (text := ast.get_docstring(node))]


def test_references_can_be_found():
    """A paper has its year, a format its address."""
    texts = [text for path in FILES if path.is_relative_to(ROOT / "learners") for text in documented(tree_of(path))]
    of_papers = [found[1] for text in texts if len(found := re.split(r"References(?:\n-+\n|: )", text)) > 1]
    assert len(of_papers) > 20
    assert [text for text in of_papers if not FOUND_BY.search(text)] == []


@pytest.mark.parametrize("path", OF_PAPERS)
def test_what_implements_a_paper_names_it(path):
    members = [node for node in ast.walk(tree_of(ROOT / "learners" / path)) if isinstance(node, MEMBERS)]
    for name in OF_PAPERS[path].split():
        (member,) = [node for node in members if node.name == name]
        assert "References\n----------" in ast.get_docstring(member)


def test_variables_say_what_they_hold():
    """Kernels excepted: a renamed one is compiled again by every user."""
    files = [path for path in FILES if not path.name.endswith("kernels.py") and path.parent.name != "kernels"]
    found = [(path, node, name_of(node).strip("_")) for path in files for node in nodes_of(path)]
    assert [f"{relative(path)}:{node.lineno}" for path, node, name in found if name in EMPTY_WORDS] == []


def name_of(node):
    """The name that gets a value here, if any does."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else ""


def test_no_test_is_skipped_on_the_quiet():
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        assert not re.search(r"pytest\.(mark\.)?skip\b", path.read_text()), relative(path)


# Fixtures and whole walks that two files share.
IMPORTED_TESTS = {
    "tests.faults.test_kills",
    "tests.security.test_paths",
    "tests.service.product.datasets.test_holdout_laws",
}


def test_no_test_module_imports_another():
    """What several tests need is in tests/support: there a change of one test does not reach others."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
                modules = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                tests = {name for name in modules if name.split(".")[-1].startswith("test_")}
                assert tests <= IMPORTED_TESTS, f"{relative(path)} imports {tests}: move what it needs to tests/support"


# Raised without a message, by tests or by those who hang up.
SILENT = {"BrokenProcessPool", "Cancelled", "KeyboardInterrupt", "OSError", "Refused", "Stop", "StopIteration"}
SILENT |= {"ZeroDivisionError", "httpx.HTTPError"}


def expected_errors(nodes):
    """(call of `pytest.raises`, whether the error gets a name, by which the test looks at it)."""
    for node in nodes:
        if isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.raises":
                    yield call, item.optional_vars is not None


def test_every_expected_error_says_what_it_must_say():
    """`pytest.raises` names a message: an error of the same class for another reason is another error."""
    bare = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for call, is_named in expected_errors(nodes_of(path)):
            expected = ast.unparse(call.args[0])
            plain = isinstance(call.args[0], ast.Name | ast.Attribute) and expected not in SILENT | {"error"}
            if plain and not is_named and "match" not in {keyword.arg for keyword in call.keywords}:
                bare.append(f"{relative(path)}:{call.lineno}")
    assert not bare
