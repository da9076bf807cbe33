"""`fewpass bench`, as a user runs it."""

import json

import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from service.operations.bench import Figures
from tests.support.cli import fewpass


def test_it_measures_learners_beside_a_scan(tmp_path, weather_files):
    train = str(weather_files[0])
    asked = ["bench", train, "--target", "class", "-l", "nb", "-l", "kdb:k=1", "--rounds", "2", "--threads", "1"]
    nb, kdb = json.loads(fewpass(*asked, "--json", workspace=tmp_path).stdout)
    assert nb["learner"] == "nb" and kdb["learner"] == "kdb:k=1"
    for told in (nb, kdb):
        assert len(told["scan_s"]) == len(told["train_s"]) == len(told["predict_s"]) == 2
        middle, least, greatest = told["train_over_scan"]
        assert 0 < least <= middle <= greatest and told["row_us"] > 0 and told["peak_rss_mib"] > 50
    assert "kdb:k=1" in fewpass("bench", "--rows", "1000", "-r", "1", "-l", "kdb:k=1", workspace=tmp_path).stdout


def test_ratios_are_of_one_round_each():
    assert Figures("nb", 10, (1.0, 2.0, 4.0), (3.0, 4.0, 4.0), (1.0,) * 3, 5.0, 300.0).over_scan() == (2, 1, 3)


def test_what_cannot_be_measured_is_told_in_words(tmp_path, weather_files):
    train = str(weather_files[0])
    for arguments, code, words in (
        ([train], 2, "--target"),
        ([train, "-t", "clas"], 1, "class"),
        ([train, "-t", "class", "-l", "random-forest"], 1, "must be one of auto"),
        ([str(tmp_path / "nothing.parquet"), "-t", "class", "-l", "nb"], 1, "nothing.parquet"),
    ):
        assert words in fewpass("bench", *arguments, workspace=tmp_path, code=code).stderr


def test_only_parquet_has_a_bare_scan_to_compare_with(tmp_path, weather_files):
    pacsv.write_csv(pq.read_table(weather_files[0]), tmp_path / "a.csv")
    failed = fewpass("bench", tmp_path / "a.csv", "-t", "class", "-l", "nb", workspace=tmp_path, code=1)
    assert "a.csv is not a Parquet file" in failed.stderr
