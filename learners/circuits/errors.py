"""Errors of circuits and of computations on them."""

from __future__ import annotations

from collections.abc import Sequence

from learners.errors import LearnerError


class InvalidCircuit(LearnerError, ValueError):
    """Raised if a circuit is not complete, decomposable and normalized, or its arrays do not match."""

    def __init__(self, reason: str, node: int | None = None) -> None:
        super().__init__(f"{f'Node {node}' if node is not None else 'The circuit'} {reason}.")
        self.node = node
        self.reason = reason


class CircuitFormatError(LearnerError, ValueError):
    """Raised if a file does not contain a circuit in the text or JSON format."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where


class InvalidEvidence(LearnerError, ValueError):
    """Raised if rows or a query do not fit the circuit: an unknown variable, a value outside its domain, a wrong shape."""


class NoArcs(LearnerError, ValueError):
    """Raised if an intervention is requested from a model without arcs."""

    def __init__(self) -> None:
        super().__init__(
            "An intervention (do) cuts the arcs into a column, but this model is not a network with arcs. Use a network (nb, tan, kdb, "
            "skdb, or a BIF file), a posterior over structures (orders), or ask for a conditional with the value in evidence."
        )


class NoGraphs(LearnerError, ValueError):
    """Raised if a query names a graph, but the model is not a posterior over graphs."""

    def __init__(self) -> None:
        super().__init__(
            "Only a posterior over structures (learner orders) has several graphs: leave graph (--average, --edge) out."
        )


class ImpossibleEvidence(LearnerError, ValueError):
    """Raised if the circuit gives the evidence probability zero, so that conditioning is impossible.

    row: index among the rows, or queries, asked together.
    column: column with a value that is impossible, by itself or with those before it.
    reason: explanation, if known.
    """

    def __init__(self, row: int | None = None, column: str | None = None, reason: str | None = None) -> None:
        what = "row" if column is None else "query"
        where = "the evidence" if row is None else f"the evidence of {what} {row}"
        remedy = "Leave out the value that never occurs with the others, or train with a larger pseudo-count."
        super().__init__(f"The circuit gives {where} probability zero{'. ' + remedy if reason is None else reason}")
        self.row, self.column, self.reason = row, column, reason


class InvalidQuery(InvalidEvidence):
    """Raised if a variable or value of the query does not fit the circuit."""


class ContinuousQuery(LearnerError, ValueError):
    """Raised if a solver does not support a query variable without a finite domain."""

    def __init__(self, solver: str, variables: Sequence[int]) -> None:
        named = ", ".join(map(str, variables))
        super().__init__(
            f"Solver {solver!r} searches finite domains, but query variable {named} has an infinite one. "
            "Use solver='bt' or 'kbt', which take the mode of a leaf, or leave the variable out of the query."
        )
        self.variables = tuple(variables)


class BeyondDoublePrecision(LearnerError, ValueError):
    """Raised if the best values lie too far below the circuit's bound for a solver to compare them."""

    def __init__(self, solver: str, gap: float) -> None:
        super().__init__(
            f"Solver {solver!r} compares values on the scale of the circuit's bound, which lies {gap:.0f} nats above the "
            "best tree: too far for double precision. Use 'bt', 'kbt' or 'exact', or give more evidence."
        )
        self.gap = gap
