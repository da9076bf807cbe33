"""Kinds of models: a class with its capabilities, and one sentence for each capability that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pyarrow as pa

from learners.errors import LearnerError, NoImportances
from learners.kernels.arrays import Arrays, Floats
from learners.models.model import Model
from learners.models.record_classifier import record_classifier
from learners.registry.column_graphs import ColumnGraph, NoGraph
from learners.registry.lazy_imports import deferred

if TYPE_CHECKING:  # a training or a serving process needs neither circuits, structures, passes nor SQL
    from learners.circuits.model import CircuitModel
    from learners.circuits.variables import Columns
    from learners.orders.model import OrderModel
    from learners.passes.learner import Passes
    from learners.registry.networks.arc_networks import ArcNetwork
    from learners.registry.sql.sql_networks import Writable


class NoJoint(LearnerError, ValueError):
    """Raised if a model holds P(class | attributes) only."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has no joint distribution to query. Use a circuit (learner spn), a network (nb, tan, kdb, skdb, orders), "
            "or an ensemble (auto, eskdb) (docs/limits.md#probabilities)."
        )


class NoCircuit(LearnerError, ValueError):
    """Raised if files and pictures of circuits cannot hold a model that answers queries."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has leaves of several columns, which the circuit formats and pictures cannot hold. "
            "Query it; its parameters are tables of the version's DuckDB file."
        )
        self.kind = kind


class NoNetwork(LearnerError, ValueError):
    """Raised if a model is not a network, and cannot be written as one."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} is not a Bayesian network, so it cannot be exported as one. Networks (nb, tan, kdb, skdb, "
            "and imported ones), posteriors over structures (orders), and the joint member of an ensemble can."
        )


class NoPosterior(LearnerError, ValueError):
    """Raised if a picture or file of a posterior over structures is requested from another kind of model."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has no posterior over structures. Train with learner orders (StructurePosterior in Python) to get one."
        )


class NoChains(LearnerError, ValueError):
    """Raised if chains are requested from a model that was not sampled."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A model of kind {kind!r} has no sampling chains to plot. Train with learner gibbs (CircuitPosterior in Python) to get them."
        )


class NoSQL(LearnerError, ValueError):
    """Raised if a model cannot be written as SQL."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} cannot be exported as SQL. Train with learner nb, tan, kdb, skdb, eskdb or auto.")


class Cannot:
    """A capability that a kind of model lacks; a call raises an error with that sentence."""

    def __init__(self, refusal: Callable[[str], LearnerError]) -> None:
        self.refusal = refusal

    def __call__(self, model: Model, *given: object) -> NoReturn:
        """Raises the refusal of the model's kind."""
        del given
        raise self.refusal(model.kind)


NO_JOINT = Cannot(NoJoint)
_no_arcs = deferred("learners.circuits.errors:NoArcs")
NO_ARCS = Cannot(lambda _: _no_arcs())
NO_NETWORK = Cannot(NoNetwork)
NO_GRAPH = Cannot(NoGraph)
NO_POSTERIOR = Cannot(NoPosterior)
NO_IMPORTANCES = Cannot(NoImportances)
NO_SQL = Cannot(lambda kind: NoSQL(f"A model of kind {kind!r}"))
NO_CHAINS = Cannot(NoChains)


class Resumption(NamedTuple):
    """A recipe that continues the training of a model."""

    recipe: Callable[[], Passes[Any]]
    reads_all_rows: bool = False  # the new ones behind the others, in the same order


def answer_without_evidence(model: Model) -> Sequence[float]:
    """Return the probability of each class without evidence."""
    probabilities: list[float] = record_classifier(model)({}).tolist()
    return probabilities


@dataclass(frozen=True)
class Kind:
    """A class of models and its capabilities, each a function of a model.

    A kind lacks the capabilities that it does not fill in: `can` is False, `cannot` is the error message, and a call
    raises it. Answers from a model's own arrays are methods of its class, see `learners.models.model.Model`.
    """

    model: type[Model]
    check: Callable[[Mapping[str, object], Arrays], None] | None = None
    """Refuses arrays from elsewhere that are no such model; None of a class that checks them whenever it is made."""

    # Queries of the joint distribution.
    circuit: Callable[[Any, int, int | None], CircuitModel] = NO_JOINT
    """What answers queries: the model itself, or its network compiled, with `max_edges` and `most_bytes` of `NetworkModel`."""
    is_circuit: bool = False
    """Whether `circuit` is the model itself, which costs nothing."""
    has_regions: bool = True
    """Whether files and pictures hold the circuit; not where a leaf has several columns."""
    columns: Callable[[Any], Columns] | None = None
    """The columns of the circuit without compiling it; None where `circuit` is cheap."""
    n_circuit_edges: Callable[[Any], int] | None = None
    """The edges of the circuit without compiling it; None where it is compiled when the first query needs it."""
    log_likelihood: Callable[[Any, pa.RecordBatch], Floats] = NO_JOINT
    """(n_rows,) the log probability of the rows of a model without classes; NaN for a row that the model cannot score."""

    # Networks and graphs.
    network: Callable[[Any, int | None], ArcNetwork] = NO_ARCS
    """The network, of at most so many probabilities, or any number with None; of a posterior over structures the most probable graph."""
    has_arcs: bool = False
    """Whether columns of the one network can be set from outside."""
    network_order: Callable[[Any], Sequence[int]] = NO_NETWORK
    """The variables in the order in which a network file lists them."""
    graph: Callable[[Any], ColumnGraph] = NO_GRAPH
    family_table: Callable[[Any, str, int], dict[str, Any]] = NO_GRAPH
    """The table behind a column, of at most so many contexts."""
    structures: Callable[[Any], OrderModel] = NO_POSTERIOR
    """The posterior over structures, which answers queries about edges and graphs."""

    # Everything else.
    importances: Callable[[Any], Floats] = NO_IMPORTANCES
    """Information of each attribute about the class, (n_attributes,) float64, in the model's own unit."""
    sql: Callable[[Any], Writable] = NO_SQL
    trace: Callable[[Any], Floats] = NO_CHAINS
    """(n_chains, n_sweeps, 7) how the chains of a sampler went."""
    resume: Callable[[Any], Resumption | str | None] | None = None
    """How a model goes on learning, or why it must start anew; None if it has nothing to go on from."""
    trial: Callable[[Any], Sequence[float]] = answer_without_evidence
    """Probabilities, which sum to one, that a model from elsewhere answers on trial; what fails raises."""

    @property
    def name(self) -> str:
        """Name in the headers of stored models."""
        return self.model.kind

    def can(self, capability: str) -> bool:
        """Return whether the kind has a capability, named like its field."""
        return not isinstance(getattr(self, capability), Cannot)

    def cannot(self, capability: str) -> str:
        """Return the sentence that explains why the kind lacks a capability."""
        return str(getattr(self, capability).refusal(self.name))
