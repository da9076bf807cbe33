"""The pages of the papers: each says how it is made, and one is made here."""

import re

import pytest

from benchmarks.papers.__main__ import all_pages, chosen_pages, main, write_index
from benchmarks.papers.page import PAGES, PAPERS, Measured, Page

NAMES = [page.name for page in all_pages()]


def test_every_page_has_a_paper_a_name_and_a_measurement_or_a_reason():
    assert len(set(NAMES)) == len(NAMES) > 0
    for page in all_pages():
        assert page.paper in PAPERS and page.name.startswith(f"{page.paper.lower()}-")
        assert (page.measure is None) == bool(page.reason), page.name


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_every_page_names_the_command_that_makes_it(path):
    commands = re.findall(r"`python -m benchmarks\.papers ([\w-]+)(?: --quick)?`", path.read_text())
    if path.stem == "README":
        assert commands == [page.name for page in all_pages()]
    else:
        assert commands == [path.stem] and path.stem in NAMES
        assert re.search(r"commit [0-9a-f]{8}[;, ]", path.read_text())


def test_a_page_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["papers", "s1-table-1", "--quick", "--out", str(tmp_path)])
    main()
    text = (tmp_path / "s1-table-1.md").read_text()
    first = next(line for line in text.splitlines() if line.startswith("| set 1, Y = 0"))
    paper, ours = (float(cell) for cell in first.split(" | ")[4:6])
    assert ours == pytest.approx(paper, abs=0.005)
    sampled = float(first.split(" | ")[9].split()[0])
    assert sampled == pytest.approx(0.8756, abs=0.005), "by enumeration under the prior (2, 1)"
    assert "[Table 1: the worked example](s1-table-1.md)" in (tmp_path / "README.md").read_text()


def test_a_page_that_cannot_be_made_has_its_reason_in_the_index(tmp_path, monkeypatch, capsys):
    pages = [Page("S1", "s1-none", "no table", None, "Its data are not here.")]
    monkeypatch.setattr("benchmarks.papers.__main__.all_pages", lambda: pages)
    monkeypatch.setattr("sys.argv", ["papers", "--quick", "--out", str(tmp_path)])
    main()
    assert capsys.readouterr().out == "s1-none: not run. Its data are not here.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (
        "| no table | `python -m benchmarks.papers s1-none` | Its data are not here. |"
        in (tmp_path / "README.md").read_text()
    )


def test_a_page_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    def fail(_):
        raise RuntimeError("no rows")

    pages = [
        Page("S1", "s1-a", "a", fail),
        Page("S1", "s1-b", "b", lambda _: Measured(["x"], "none.", "0", "none.")),
    ]
    monkeypatch.setattr("benchmarks.papers.__main__.all_pages", lambda: pages)
    monkeypatch.setattr("sys.argv", ["papers", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="Not made: s1-a"):
        main()
    assert "s1-a: RuntimeError: no rows" in capsys.readouterr().err
    assert (tmp_path / "s1-b.md").exists() and not (tmp_path / "s1-a.md").exists()


def test_unknown_pages_are_named_with_those_there_are():
    with pytest.raises(SystemExit, match=r"There is no page s9; there are S1, S2.*s1-table-1"):
        chosen_pages(["S9"])
    assert {page.paper for page in chosen_pages(["s1"])} == {"S1"}


def test_the_index_names_pages_that_were_not_run(tmp_path):
    write_index(tmp_path)
    assert "not run yet" in (tmp_path / "README.md").read_text()
