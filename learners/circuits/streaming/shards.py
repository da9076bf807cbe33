"""Parallel ADF and BMM: shards of the rows continue from a common trained start, and their posteriors are merged."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from threading import Event

import numpy as np
import pyarrow as pa

from learners.circuits.circuit import Circuit
from learners.circuits.streaming.online import PseudoCounts, StreamingPosterior, recompute_weights_from_counts
from learners.circuits.variables import circuit_columns
from learners.errors import Cancelled, StatisticMismatch
from learners.kernels.arrays import Array, Floats, Integers
from learners.passes.dask_cluster import Cluster
from learners.passes.engine import Advance, Checkpoints
from learners.passes.learner import Rows
from learners.passes.sources.source import Source
from learners.passes.threads import run_on_threads
from learners.schema import Chunk, Schema

# Rows that are learned one after the other before shards begin. Hidden states have no names: shards that begin untrained give
# one state different meanings, and their sum none.
START_ROWS = 20_000


def merge_shard_posteriors(start: StreamingPosterior, parts: Sequence[StreamingPosterior]) -> StreamingPosterior:
    """Merge the posteriors of shards, each of which continued from the same start, to the posterior of all their rows.

    Natural parameters add up, minus the start's for all parts but one. ADF and BMM lower a node's pseudo-counts
    if rows leave open which child they took, so the start may exceed what shards have left; for such a node less
    of the start is subtracted, so that each pseudo-count is at least half the shards' mean. Raises
    StatisticMismatch if circuits or rules differ.

    References: Rashwan, Zhao, Poupart (2016), section 4.3; Broderick et al. (2013), "Streaming variational Bayes".
    """
    if any(part.spec != start.spec or part.structure != start.structure for part in parts):
        raise StatisticMismatch("The shards belong to different circuits or were learned by different rules.")
    whole = start.copy()
    state, begun = whole._state, start._state
    state.pseudo_count[...] = _merged_counts(
        [part._state.pseudo_count for part in parts], begun.pseudo_count, whole._plan.starts
    )
    state.leaf[...] = begun.leaf + sum(part._state.leaf - begun.leaf for part in parts)
    recompute_weights_from_counts(whole)
    whole.n_rows = start.n_rows + sum(part.n_rows - start.n_rows for part in parts)
    whole.n_impossible = start.n_impossible + sum(part.n_impossible - start.n_impossible for part in parts)
    return whole


def _merged_counts(counts: Sequence[Floats], prior: Floats, starts: Integers) -> Floats:
    """Return the sum of the shards' pseudo-counts minus the prior's, limited to positive values, (n_entries,) float64."""
    together = np.sum(counts, axis=0)
    surplus = (len(counts) - 1) * prior
    most = np.full(prior.size, 1.0)
    known = surplus > 0
    most[known] = (1.0 - 0.5 / len(counts)) * together[known] / surplus[known]
    operation = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    share = np.ones(starts.size - 1)
    np.minimum.at(share, operation, most)
    return together - share[operation] * surplus


def learn_in_shards(
    rows: Rows, posterior: StreamingPosterior, n_shards: int | None, threads: int, advance: Advance
) -> tuple[StreamingPosterior, int]:
    """Update a posterior with all rows: the first ones in order, the rest in shards that continue from there.

    Also returns the number of shards; 1 is a single stream. There are at most n_shards, by default 1, and on a
    cluster one per worker. The result depends on their number, not on threads or workers. `advance` receives the
    number of rows learned; an error that it raises stops the shards.
    """
    cluster = rows.cluster if all(source.is_identified for source in rows.sources) else None
    n_shards = n_shards or (1 if cluster is None else cluster.n_workers)
    if n_shards == 1:

        def report(n_rows: int) -> None:
            advance(min(n_rows, rows.n_rows), rows.n_rows)

        return learn_shard(posterior, Shard(rows.sources, 0), rows.schema, report, rows.checkpoints), 1
    pieces = [Rows(rows.schema, [source.carved([i])]) for source in rows.sources for i in range(len(source.fragments))]
    n_begun, n_skipped = _begun(pieces, posterior)
    shards = list(_divided(pieces[n_begun:], n_shards, n_skipped))
    n_before = posterior.n_rows

    def learned(n_rows: int) -> None:
        advance(min(n_before + n_rows, rows.n_rows), rows.n_rows)

    learned(0)
    if cluster is None:
        parts = _on_threads(posterior, rows.schema, shards, threads, learned, rows.checkpoints)
    else:
        parts = _on_workers(posterior, rows.schema, shards, cluster, learned)
    if len(parts) < 2:
        return [posterior, *parts][-1], 1
    return merge_shard_posteriors(posterior, parts), len(parts)


def _begun(pieces: Sequence[Rows], posterior: StreamingPosterior) -> tuple[int, int]:
    """Learn the first rows; returns the number of fragments learned completely, and of rows learned from the next."""
    left = START_ROWS
    for number, piece in enumerate(pieces):
        n_rows = 0
        for chunk in piece.with_unseen():
            if chunk.n_rows >= left:
                posterior.update(chunk.rows(slice(0, left)))
                return number, n_rows + left
            posterior.update(chunk)
            left -= chunk.n_rows
            n_rows += chunk.n_rows
    return len(pieces), 0


@dataclass(frozen=True)
class Shard:
    """Adjacent fragments, without the rows at their beginning that are already learned."""

    sources: tuple[Source, ...]
    skipped: int

    @property
    def n_rows(self) -> int:
        """Upper bound on the number of rows; a filtered source may yield fewer."""
        return max(0, sum(source.n_rows for source in self.sources) - self.skipped)

    def chunks(self, schema: Schema) -> Iterator[Chunk]:
        """Yield the rows in order."""
        left = self.skipped
        for chunk in Rows(schema, self.sources).with_unseen():
            if left >= chunk.n_rows:
                left -= chunk.n_rows
                continue
            yield chunk.rows(slice(left, None)) if left else chunk
            left = 0


def _divided(pieces: Sequence[Rows], n_shards: int, skipped: int) -> Iterator[Shard]:
    """Divide the fragments into at most n_shards shards with about equally many rows."""
    sizes = np.array([piece.n_rows for piece in pieces], np.int64)
    if sizes.size:
        sizes[0] = max(0, sizes[0] - skipped)
    ends = np.cumsum(sizes)
    cuts = [int(np.abs(ends - ends[-1] * k / n_shards).argmin()) + 1 for k in range(1, n_shards)] if sizes.size else []
    for first, end in pairwise(sorted({0, *cuts, len(pieces)})):
        if sizes[first:end].any():
            sources = tuple(source for piece in pieces[first:end] for source in piece.sources)
            yield Shard(sources, skipped if first == 0 else 0)


def learn_shard(
    posterior: StreamingPosterior,
    shard: Shard,
    schema: Schema,
    report: Callable[[int], object] = lambda _: None,
    checkpoints: Checkpoints | None = None,
) -> StreamingPosterior:
    """Update a posterior with the rows of a shard; `report` receives the number of rows after each chunk, and may
    raise.

    An interrupted run reads the rows of its checkpoint again, and learns only the others: the posterior is the
    same.
    """
    checkpoint = None if checkpoints is None else checkpoints.at(_key(posterior, shard, schema))
    loaded = None if checkpoint is None else checkpoint.load()
    n_known, n_rows = 0, 0
    if loaded is not None:
        table, note = loaded
        posterior, n_known = posterior.from_arrow(table), note["rows"][0]
    saved_at = time.perf_counter()
    for chunk in shard.chunks(schema):
        n_rows += chunk.n_rows
        if n_rows > n_known:
            # Checkpoints lie between chunks.
            posterior.update(chunk)
        report(n_rows)
        if checkpoint is not None and n_rows > n_known and time.perf_counter() - saved_at >= checkpoint.every_s:
            checkpoint.save(posterior.to_arrow(), {"rows": [n_rows]})
            saved_at = time.perf_counter()
    return posterior


def _key(posterior: StreamingPosterior, shard: Shard, schema: Schema) -> str:
    """Return a key of the stream: its start, rows and learning rule."""
    identity = [
        posterior.spec,
        posterior.prior.numeric,
        schema.to_json(),
        shard.skipped,
        Rows(schema, shard.sources).identity,
    ]
    digest = hashlib.sha256(repr(identity).encode())
    arrays: list[Array] = [*posterior.structure.arrays, *posterior.state_arrays().values()]
    for array in arrays:
        digest.update(array.tobytes())
    return f"stream-{digest.hexdigest()}"


def _on_threads(
    start: StreamingPosterior,
    schema: Schema,
    shards: Sequence[Shard],
    threads: int,
    learned: Callable[[int], object],
    checkpoints: Checkpoints | None,
) -> list[StreamingPosterior]:
    """Learn shards on threads; `learned` may raise, which stops all."""
    n_learned = [0] * len(shards)
    has_ended = Event()

    def learn(number: int) -> StreamingPosterior:
        def report(n_rows: int) -> None:
            n_learned[number] = n_rows
            if has_ended.is_set():
                raise Cancelled("another shard has ended")

        return learn_shard(start.copy(), shards[number], schema, report, checkpoints)

    def report_all() -> None:
        learned(sum(n_learned))

    tasks = [partial(learn, number) for number in range(len(shards))]
    return run_on_threads(tasks, threads, has_ended, report_all, "shard")


def _on_workers(
    start: StreamingPosterior,
    schema: Schema,
    shards: Sequence[Shard],
    cluster: Cluster,
    learned: Callable[[int], object],
) -> list[StreamingPosterior]:
    """Learn shards on the workers of a cluster."""
    how, state = (start.structure, start.prior, start.projection, schema), start.to_arrow()
    states: dict[int, pa.Table] = {}
    for number, after in cluster.each(_learned_shard, [(how, state, shard) for shard in shards]):
        states[number] = after
        learned(sum(shards[done].n_rows for done in states))
    return [start.from_arrow(states[number]) for number in range(len(shards))]


def _learned_shard(how: tuple[Circuit, PseudoCounts, str, Schema], state: pa.Table, shard: Shard) -> pa.Table:
    """Return the state of a posterior after learning a shard; runs on a worker."""
    circuit, prior, projection, schema = how
    posterior = StreamingPosterior(circuit, prior, projection, circuit_columns(circuit, schema).rows_of_chunk)
    return learn_shard(posterior.from_arrow(state), shard, schema).to_arrow()
