"""What tests of posteriors over structures share."""

from pathlib import Path

import pytest

NETWORKS = Path(__file__).parent.parent.parent.parent / "shared" / "data" / "networks"
needs_networks = pytest.mark.skipif(
    not NETWORKS.is_dir(), reason="the networks of the Bayesian Network Repository are not at ../shared/data/networks"
)
