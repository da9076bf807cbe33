"""Errors of MAP queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from learners.circuits import errors
from learners.errors import LearnerError


class InvalidQuery(errors.InvalidEvidence):
    """A variable or value of the query does not fit the circuit."""


class ImpossibleEvidence(errors.ImpossibleEvidence):
    """The circuit gives the evidence probability zero, so every answer would be as good as any other."""

    def __init__(self, evidence: Mapping[int, float]) -> None:
        given = ", ".join(f"variable {v} = {value}" for v, value in sorted(evidence.items())[:8])
        more = f" and {len(evidence) - 8} more" if len(evidence) > 8 else ""
        ValueError.__init__(
            self,
            f"The circuit gives the evidence probability zero ({given or 'no evidence'}{more}). "
            "Drop the value that never occurs together with the others, or learn with a pseudo-count.",
        )
        self.row = None
        self.evidence = dict(evidence)


class ContinuousQuery(LearnerError, ValueError):
    """A solver was asked for the most probable value of a variable without a finite domain."""

    def __init__(self, solver: str, variables: Sequence[int]) -> None:
        named = ", ".join(map(str, variables))
        super().__init__(
            f"Solver {solver!r} searches finite domains, but query variable {named} has none. "
            "Use solver='bt' or 'kbt', which take the mode of a leaf, or leave the variable out of the query."
        )
        self.variables = tuple(variables)


class BeyondDoublePrecision(LearnerError, ValueError):
    """The best values lie so far below the circuit's bound that a solver cannot compare them."""

    def __init__(self, solver: str, gap: float) -> None:
        super().__init__(
            f"Solver {solver!r} compares values on the scale of the circuit's bound, which lies {gap:.0f} nats above the "
            "best tree: too far for double precision. Use 'bt', 'kbt' or 'exact', or give more evidence."
        )
        self.gap = gap
