"""Answers as the command line prints them."""

from learners.schema import Attribute, Schema
from service.cli.answer_words import show_distribution_answer


def test_moments_of_times_are_dates(capsys):
    when = Attribute("when", "numeric", cuts=(1.7e9,), arrow_type="timestamp[us]")
    size = Attribute("size", "numeric", cuts=(1.5,), arrow_type="double")
    moments = {
        "when": {"mean": 1_772_653_826.25, "variance": 9.73091e12, "interval": [1_767_225_600.0, 1_772_653_826.25]},
        "size": {"mean": 1.23456789012, "variance": 2.0, "interval": [1.0, 2.0]},
    }
    show_distribution_answer(
        {"kind": "moments", "level": 0.9, "moments": moments}, Schema((when, size), "y", ("a", "b"))
    )
    said = " ".join(capsys.readouterr().out.replace("\u2502", " ").split())
    assert "2026-03-04T19:50:26 9.73091e+12 2026-01-01 to 2026-03-04T19:50:26" in said
    assert "1.23456789 2 1 to 2" in said and "e+09" not in said
