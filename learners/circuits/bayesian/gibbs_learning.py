"""Learning of a Bayesian circuit: one pass for the schema, one for the rows, then sweeps."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from learners.circuits.bayesian.chains import Run, run_chains
from learners.circuits.bayesian.circuit_draws import CircuitDraws
from learners.circuits.bayesian.circuit_layout import Layout, build_circuit_layout
from learners.circuits.bayesian.collapsed_sampler import MOST_IN_MEMORY, FileStore, InMemory, RowBlocks, Store
from learners.circuits.bayesian.column_families import Coding
from learners.circuits.bayesian.leaf_kernels import FIRST, SECOND
from learners.circuits.bayesian.model import BayesianCircuit, Sampled
from learners.circuits.bayesian.priors import (
    Column,
    Prior,
    Strengths,
    complete_tree_shape,
    complete_tree_sum_counts,
    prior_from_leaf_parameters,
)
from learners.circuits.bayesian.tuning import Chosen, tune_prior_settings
from learners.circuits.parameters import GibbsParameters
from learners.errors import EmptyData, LearnerError
from learners.kernels.arrays import Float32s, Uint8s
from learners.passes.engine import Advance
from learners.passes.learner import Rows
from learners.passes.memory import memory_limit
from learners.schema import Schema

# Rows that priors are fitted to, and that trials learn from.
SAMPLE_ROWS = 10_000
# States of chains that a model keeps to go on from; one that has more starts anew.
MOST_STATES = 256 << 20


class CircuitTooLarge(LearnerError, ValueError):
    """Raised if the complete circuit over the columns does not fit in memory."""

    def __init__(self, n_columns: int, children: int, n_bytes: int, limit: int) -> None:
        n_sums, _ = complete_tree_sum_counts(n_columns, children)
        super().__init__(
            f"A circuit over {n_columns} columns whose sums have {children} children has {n_sums:,} sums: its chains and draws "
            f"take {n_bytes / 2**20:,.0f} MiB, and {limit / 2**20:,.0f} MiB may be used. Use fewer children, draws or chains, "
            "drop columns, or allow more memory."
        )


@dataclass(frozen=True)
class Sampling:
    """Sampling of a circuit from the rows of a table."""

    schema: Schema
    coding: Coding
    parameters: GibbsParameters
    facts: Mapping[str, object]  # of the model
    seed: int

    def learn(self, rows: Rows, threads: int, advance: Advance) -> BayesianCircuit:
        """Learn the model from all rows. Raises CircuitTooLarge, NoSpace if it does not fit."""
        self._require_memory()
        shape = complete_tree_shape(len(self.coding.columns), self.parameters.children, self.seed)
        with ExitStack() as stack:
            folder = self._folder(rows, stack)
            store = self._stored(rows, folder, advance)
            sample = subsample_row_blocks(store.rows(0), self.seed)
            trials = None if folder is None else folder / "trials.jsonl"
            chosen = tune_prior_settings(self.parameters, shape, self.coding, sample, self.seed, trials, advance)
            prior = chosen.prior(shape, self.coding, sample.astype(np.float64), self.seed)
            return self._sampled(prior, chosen, store, threads, advance, 0, None)

    def go_on(self, known: BayesianCircuit, rows: Rows, threads: int, advance: Advance) -> BayesianCircuit:
        """Continue a model with further rows: these are added by their predictive, then all rows are moved."""
        assert known.sampled is not None
        header, n_columns = known.sampled.header, len(self.coding.columns)
        shape = complete_tree_shape(n_columns, self.parameters.children, self.seed)
        chosen = Chosen(Strengths(**header["strengths"]), tuple(header["shares"]))
        prior = prior_from_leaf_parameters(shape, self.coding.columns, chosen.strengths, known.sampled.leaf, self.seed)
        with ExitStack() as stack:
            store = self._stored(rows, self._folder(rows, stack), advance)
            return self._sampled(prior, chosen, store, threads, advance, header["turn"] + 1, known.sampled.choices)

    def _sampled(
        self,
        prior: Prior,
        chosen: Chosen,
        store: Store,
        threads: int,
        advance: Advance,
        turn: int,
        known: list[Uint8s] | None,
    ) -> BayesianCircuit:
        parameters, layout = self.parameters, build_circuit_layout(prior)
        if isinstance(store, FileStore):
            n_numbers = parameters.draws * layout.n_parameters
            store.require_room(parameters.chains, prior.shape.n_positions, n_numbers)
        seed = self.seed, turn
        run = run_chains(prior, layout, store, parameters, seed=seed, known=known, threads=threads, advance=advance)
        return self._model(prior, chosen, layout, run, turn)

    def _model(self, prior: Prior, chosen: Chosen, layout: Layout, run: Run, turn: int) -> BayesianCircuit:
        n_weights = layout.edge.size
        draws = CircuitDraws(
            layout.circuit_of(run.mean), run.draws[:, :n_weights].T.copy(), run.draws[:, n_weights:].T.copy()
        )
        facts = dict(self.facts) | {
            "n_rows": len(run.choices[0]),
            "diagnostics": asdict(run.diagnostics),
            "strengths": asdict(chosen.strengths),
            "trials": [[value, values] for value, values in chosen.trials],
        }
        sampled = None
        if sum(choices.nbytes for choices in run.choices) <= MOST_STATES:
            header = {
                "coding": asdict(self.coding),
                "strengths": asdict(chosen.strengths),
                "shares": list(chosen.shares),
                "turn": turn,
                "seed": self.seed,
            }
            leaf = np.ascontiguousarray(prior.leaf[:, [FIRST, SECOND]])
            sampled = Sampled(header, leaf, [np.array(choices) for choices in run.choices])
        return BayesianCircuit(self.schema, draws, len(run.choices), facts, run.trace, sampled)

    def _require_memory(self) -> None:
        parameters, n_children = self.parameters, self.parameters.children
        domains = np.array([column.n_values for column in self.coding.columns])
        n_sums, n_leaf_sums = complete_tree_sum_counts(domains.size, n_children)
        n_edges, n_leaves = n_sums * n_children, n_leaf_sums * n_children
        # Columns have about equally many leaves.
        n_parameters = n_edges + n_leaves * float(np.maximum(domains, 2).mean())
        # A sweep has the tallies before, those that move, and those that are counted anew.
        of_chain = 3 * (4 * n_edges + 64 * n_leaves + 4 * n_leaves * float(domains.mean()))
        needed, limit = parameters.chains * of_chain + 16 * parameters.draws * n_parameters, memory_limit().n_bytes
        if needed > limit:
            raise CircuitTooLarge(domains.size, n_children, int(needed), limit)

    def _folder(self, rows: Rows, stack: ExitStack) -> Path | None:
        """Return the folder for the run's files: a persistent one, a temporary one if the rows are many, or None."""
        if rows.folder is not None:
            identity = [asdict(self.parameters), self.schema.fingerprint, asdict(self.coding), self.seed, rows.identity]
            name = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:16]
            return rows.folder / f"gibbs-{name}"
        if rows.n_rows * len(self.coding.columns) * 4 <= MOST_IN_MEMORY:
            return None
        temporary = tempfile.TemporaryDirectory(prefix="fewpass-gibbs-", dir=memory_limit().directory)
        return Path(stack.enter_context(temporary))

    def _stored(self, rows: Rows, folder: Path | None, advance: Advance) -> Store:
        n_columns = len(self.coding.columns)

        def blocks() -> Iterator[Float32s]:
            n_done = 0
            for chunk in rows.with_unseen():
                yield self.coding.rows(self.schema, chunk, n_done)
                n_done += chunk.n_rows
                advance(min(n_done, rows.n_rows), rows.n_rows, "reading rows")

        store: Store
        if folder is None:
            parts = list(blocks())
            store = InMemory(np.concatenate(parts) if parts else np.empty((0, n_columns)))
        else:
            store = FileStore.written(folder, blocks(), n_columns)
        if not store.n_rows:
            raise EmptyData("There are no rows to learn from.")
        return store


def restore_sampling(known: BayesianCircuit, parameters: GibbsParameters) -> Sampling:
    """Restore the sampling settings of a learned model."""
    assert known.sampled is not None
    header = known.sampled.header["coding"]
    columns = tuple(Column(**own | {"families": tuple(own["families"])}) for own in header["columns"])
    coding = Coding(columns, tuple(header["noise"]), header["seed"])
    return Sampling(known.schema, coding, parameters, known.facts, known.sampled.header["seed"])


def subsample_row_blocks(rows: RowBlocks, seed: int) -> Float32s:
    """Return at most 10,000 rows in random order, (n, n_columns) float32."""
    rng = np.random.default_rng([seed, 3])
    n = min(SAMPLE_ROWS, rows.n_rows)
    chosen = np.sort(rng.choice(rows.n_rows, n, replace=False))
    parts = [
        x[chosen[(chosen >= where.start) & (chosen < where.stop)] - where.start].copy() for where, x in rows.blocks()
    ]
    return np.concatenate(parts)[rng.permutation(n)]
