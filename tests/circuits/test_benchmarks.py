"""What the benchmark of density estimation keeps and writes."""

from benchmarks import density
from benchmarks.measuring import keep, read_kept


def test_results_are_read_as_they_were_kept(tmp_path):
    results = [density.Result("nltcs", "hclt", "em", 10, 0.1, -6.0, -6.1, 2.5)]
    keep(tmp_path / "kept.json", results)
    assert read_kept(tmp_path / "kept.json", density.Result) == results


def test_tables_between_marks(tmp_path, monkeypatch):
    monkeypatch.setattr(density, "RESULTS", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{density.MARK}old\n{density.MARK}after\n")
    density.write_page("page.md", "\n".join(density.table(["a", "b"], 1, [["x", "1"]])) + "\n")
    assert page.read_text() == f"before\n{density.MARK}| a | b |\n| --- | ---: |\n| x | 1 |\n{density.MARK}after\n"


def test_published_values_name_their_source():
    for each in density.published().values():
        assert each["source"]
        assert set(each["values"]) <= set(density.COMPLETE)
