"""What a model does when it is first mapped, so that no request waits for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from learners.circuits.model import CircuitModel
from learners.circuits.structures.from_network import NetworkTooLarge
from learners.classifiers.lookup.lookup import LookupModel
from learners.ensembles.model import EnsembleModel
from learners.errors import NoClass
from learners.schema.encoding.json_records import encode_records
from service.serving.networks import compiled_network, n_kept_edges

if TYPE_CHECKING:
    from service.serving.predictor import Served

REHEARSED = (2, 40)  # rows: kernels have a way for few, and one for many

# Edges of the circuit of a network that is compiled before a request asks for it, about 0.1 KB each; and of all such circuits:
# a process that maps hundreds of models may never be asked queries.
MOST_REHEARSED, MOST_KEPT = 200_000, 2_000_000


def rehearse(served: Served) -> None:
    """Answer for rows of which nothing is known, on a thread: what runs for the first time compiles or loads, for seconds."""
    with contextlib.nullcontext() if served.watch is None else served.watch.rehearsing():
        _answer_nothing(served)


def _answer_nothing(served: Served) -> None:
    with contextlib.suppress(NoClass):  # some models answer queries only
        served.classify({})
        for n_rows in REHEARSED:
            served.predict_proba(encode_records([{}] * n_rows, served.schema))
    if isinstance(served.model, CircuitModel):
        served.model.prepare()
    network = served.model.joint if isinstance(served.model, EnsembleModel) else served.model
    if isinstance(network, LookupModel):
        with contextlib.suppress(NetworkTooLarge):  # the first query compiles it, or is refused
            compiled_network(network, min(MOST_REHEARSED, MOST_KEPT - n_kept_edges())).prepare()
