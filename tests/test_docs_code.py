"""What the documentation shows works: its Python runs, its commands parse, and the tutorial runs from end to end."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.settings import Settings
from tests.service.forks import local_server, shell
from tests.support.cli import parse
from tests.support.docs import ALONE

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = ("how-to", "reference", "explanation")
PAGES += [page for room in ROOMS for page in sorted((ROOT / "docs" / room).glob("*.md"))]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()


def blocks(text, language):
    """Every code block of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def shown_commands():
    """(page, command line) of each `fewpass` command that stands in a shell block."""
    found = []
    for page in PAGES:
        for block in blocks(page.read_text(), "sh"):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page.name, line) for line in lines if re.match(r"fewpass( |$)", line) and "…" not in line]
    return found


@pytest.mark.parametrize(("page", "line"), shown_commands())
def test_commands_parse(page, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("income-3.tar", "asia.bif", "job.json", "receipt.json", "fewpass.pem"):
        Path(file).touch()
    parse(line)


def test_commands_that_do_not_parse_are_noticed():
    with pytest.raises(Exception, match="No such option: --tagret"):
        parse("fewpass train a.parquet --tagret b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables with the columns that the pages name."""
    folder = tmp_path_factory.mktemp("docs")
    rng = np.random.default_rng(0)
    for file in ("tables/monday", "tables/tuesday", "data/income", "data/class", "new"):
        age = rng.integers(18, 70, 400)
        education = rng.choice(["School", "Bachelors", "Masters"], 400, p=[0.6, 0.3, 0.1])
        is_rich = rng.random(400) < (age > 35) * 0.2 + (education != "School") * 0.4
        income = np.where(is_rich, ">50K", "<=50K")
        table = pa.table({"age": age, "education": education, "class" if file == "data/class" else "income": income})
        (folder / file).parent.mkdir(exist_ok=True)
        pq.write_table(table, folder / f"{file}.parquet")
    return folder


@pytest.mark.parametrize("page", ALONE)
def test_python_runs(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"table": pq.read_table("new.parquet")}
    for block in blocks((ROOT / "docs" / page).read_text(), "python"):
        exec(compile(block.replace('target="class"', 'target="income"'), page, "exec"), names)


@pytest.mark.timeout(900)
@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("curl")), reason="bash and curl are needed")
def test_the_tutorial_runs(tmp_path, monkeypatch):
    (script,) = blocks(TUTORIAL, "python")
    (tmp_path / "make_deliveries.py").write_text(script)
    *commands, serve, ask = blocks(TUTORIAL, "sh")
    assert serve == "fewpass serve\n"
    shell("python make_deliveries.py", tmp_path)
    shown = shell("exec 2>&1\n" + "".join(commands), tmp_path)
    for block in blocks(TUTORIAL, "text"):
        for line in block.splitlines():
            words = re.sub(r"[┃│]", " ", line).split()
            assert any(words == re.sub(r"[┃│]", " ", other).split() for other in shown.splitlines()), line
    losses = re.search(r"log loss ([\d.]+) ± [\d.]+ \(class shares ([\d.]+)\)", shown)
    assert losses is not None
    told, of_class_shares = (f"{float(loss):.2f}"[1:] for loss in losses.groups())
    assert f"about {told}; the class shares alone would give {of_class_shares}." in " ".join(TUTORIAL.split())
    monkeypatch.chdir(tmp_path)
    with local_server(Settings(workspace=tmp_path / "workspace", warm_up=False, job_workers=0)) as server:
        answer = json.loads(shell(ask.replace("localhost:8000", server.url.removeprefix("http://")), tmp_path))
    assert answer["version"] == 3 and len(answer["probabilities"]) == 2


@pytest.mark.timeout(900)
@pytest.mark.skipif(not shutil.which("bash"), reason="bash is needed")
def test_the_path_of_the_first_page_runs_on_an_odd_file(tmp_path):
    install, *commands = blocks((ROOT / "docs" / "index.md").read_text(), "sh")
    assert "pip install" in install
    draw = np.random.default_rng(0)
    for month, file in ((1, "orders.csv"), (2, "tomorrow.csv")):
        lines = ["customer_id;ordered;distance;late"]
        for row in range(300):
            distance = draw.gamma(2, 60)
            late = "yes" if draw.random() < distance / 300 else "no"
            shown = "?" if row % 20 == 0 else f"{distance:.1f}".replace(".", ",")
            lines.append(f"{draw.integers(1, 40)};{draw.integers(1, 29):02}.{month:02}.2024;{shown};{late}")
        (tmp_path / file).write_text("\n".join(lines) + "\n")
    shown = shell("exec 2>&1\n" + "".join(commands).replace("fewpass serve\n", ""), tmp_path)
    (odd,) = [line for line in commands[1].splitlines() if "--columns" in line]
    assert f"All at once: {odd[odd.index('--columns') :]}." in shown
    assert "log loss" in shown and "(class shares" in shown
    assert "customer_id" in pq.read_table(tmp_path / "scored.parquet").column_names
    assert re.search(r"orders@4 equals, bit for bit, the model of the remaining \d+ training rows", shown)


def test_refusals_link_to_headings_of_the_limits_page():
    page = (ROOT / "docs" / "limits.md").read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line[3:].lower()).replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("## ")
    }
    sources = [path.read_text() for room in ("learners", "service") for path in (ROOT / room).rglob("*.py")]
    linked = {section for text in sources for section in re.findall(r"docs/limits\.md#([a-z-]+)", text)}
    assert linked and linked <= headings, linked - headings
