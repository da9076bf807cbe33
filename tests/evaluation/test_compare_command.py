"""`fewpass compare` as a user runs it."""

import json
import sys

from typer.testing import CliRunner

from service.cli import app


def test_compare_prints_and_writes(folder, tmp_path, monkeypatch):
    arguments = ["compare", str(folder), "-l", "nb:m=1", "-l", "kdb:k=1,m=1", "-r", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["fewpass", *arguments])
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["learners"] == ["nb:m=1", "kdb:k=1,m=1"]
    assert [entry["name"] for entry in found["data_sets"]] == ["rare", "two"]
    assert len((tmp_path / "out/outcomes.jsonl").read_text().splitlines()) == 8
    assert "fewpass compare" in (tmp_path / "out/README.md").read_text()
    result = CliRunner().invoke(app, [*arguments, "--picture", "nb:m=1 against kdb:m=1,k=1"])
    assert result.exit_code == 0, result.output
    assert "means over 2 data sets" in result.stdout
    assert (tmp_path / "out/rmse-nb-m-1-against-kdb-k-1-m-1.svg").exists()


def test_a_picture_needs_two_learners(folder):
    result = CliRunner().invoke(app, ["compare", str(folder), "--picture", "nb"])
    assert result.exit_code == 2
    assert "is not 'A against B'" in result.output
    result = CliRunner().invoke(app, ["compare", str(folder), "-l", "nb", "--picture", "nb against tan"])
    assert result.exit_code == 2
    assert "tan is not compared" in result.output
