"""What people read in place of the names in JSON."""

from learners.monitoring.drift_findings import QUALITY
from service.product.inference.metric_words import largest_rate_change_words


def test_the_rate_that_changed_most_is_told_in_words():
    rates = {"missing": {"points": -0.5}, "low_tail": {"points": 2.04}, "rare": {"points": None}}
    assert largest_rate_change_words({"rates": rates}) == "at the lowest values of training +2.0 points"
    for kind in QUALITY:
        assert "_" not in largest_rate_change_words({"rates": {kind: {"points": 1.0}}}), kind
    assert largest_rate_change_words({"rates": {"missing": {"points": 0.0}}}) == ""
