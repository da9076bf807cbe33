"""Passes on a Dask cluster: statistics of groups of fragments, merged as a tree."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from learners.errors import ClusterError
from learners.passes.engine import OnProgress, Progress, collect
from learners.passes.sources.source import Source
from learners.passes.statistic import Statistic

if TYPE_CHECKING:  # slow to import, and not always installed
    from distributed import Client, Future

S = TypeVar("S", bound=Statistic)

GROUP_ROWS = 2_000_000  # of a task, at most
TASKS = 2  # for each worker, at least: who is done first takes more
FAN_IN = 8
CONNECT_S = 10.0


class Cluster:
    """Connection to Dask workers; create it with `connect_dask_cluster`."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def collect(
        self,
        statistic: S,
        source: Source,
        on_progress: OnProgress | None = None,
        pass_number: int = 1,
        n_passes: int | None = None,
    ) -> S:
        """Collect the statistic of all rows of the source in one pass, bit for bit as `engine.collect` does.

        Workers read the files themselves, so paths must be valid on all of them. A group whose worker dies is counted
        again by another worker, and counts once.

        Raises ClusterError if the cluster is lost, or keeps losing its workers; SourceError, SchemaError or UnknownColumn
        as the data gives reason.
        """
        groups = list(fragment_groups(source, self.n_workers))
        # Sent with every task: what is scattered dies with the worker that has it.
        empty = statistic.empty()
        futures = [self.client.submit(collect_on_worker, empty, group, pure=False) for group in groups]
        rows = dict(zip([future.key for future in futures], [group.n_rows for group in groups], strict=True))
        started, done = time.perf_counter(), 0
        try:
            for future in _ended(futures):
                done += rows[future.key]
                if on_progress is not None:
                    seconds = time.perf_counter() - started
                    on_progress(Progress(statistic.stage, pass_number, n_passes, done, source.n_rows, seconds))
            return self._reduced(statistic, empty, futures)
        finally:
            self.client.cancel(futures)

    @property
    def n_workers(self) -> int:
        """Number of workers currently connected, at least one."""
        return max(1, len(self.client.ncores()))

    def each(self, run: Callable[..., pa.Table], calls: Sequence[tuple[object, ...]]) -> Iterator[tuple[int, pa.Table]]:
        """Run a function on each call's arguments; yields the call's number and result as calls finish, and repeats
        calls whose worker died.

        Raises ClusterError if the cluster is lost, or keeps losing its workers; SourceError, SchemaError or UnknownColumn
        as the data gives reason.
        """
        futures = [self.client.submit(run, *call, pure=False) for call in calls]
        numbers = {future.key: number for number, future in enumerate(futures)}
        try:
            for future in _ended(futures):
                yield numbers[future.key], future.result()
        finally:
            self.client.cancel(futures)

    def _reduced(self, statistic: S, empty: S, futures: Sequence[Future]) -> S:
        while len(futures) > FAN_IN:
            futures = [
                self.client.submit(sum_worker_statistics, empty, list(futures[first : first + FAN_IN]), pure=False)
                for first in range(0, len(futures), FAN_IN)
            ]
        try:
            tables = self.client.gather(list(futures))
        except Exception as error:
            raise _readable(error) from error
        whole = statistic.empty()
        for table in tables:
            whole.merge(statistic.empty().from_arrow(table))
        return whole


@contextmanager
def connect_dask_cluster(address: str) -> Iterator[Cluster]:
    """Connect to a running cluster, or start one of local processes that ends with the context.

    `address`: "tcp://host:8786" of a Dask scheduler, or "local:4" for four processes here. Raises ClusterError if Dask is
    not installed, or nothing answers there.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise ClusterError(address, "Dask is not installed: pip install 'fewpass[dask]'") from None
    kind, _, count = address.partition(":")
    if kind == "local":
        if not (count or "2").isdigit() or not 1 <= int(count or "2") <= 256:
            raise ClusterError(address, "write local:N with N processes from 1 to 256")
        pool = LocalCluster(n_workers=int(count or "2"), threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
        with pool, Client(pool) as client:
            client.wait_for_workers(len(pool.worker_spec))
            try:
                yield Cluster(client)
            finally:
                # A heartbeat that meets the closing scheduler is no error a user should read of.
                client.run(logging.getLogger("distributed.worker").setLevel, logging.CRITICAL, on_error="ignore")
        return
    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(address, f"no Dask scheduler answers there ({error})") from error
    with client:
        yield Cluster(client)


def fragment_groups(source: Source, n_workers: int) -> Iterator[Source]:
    """Divide the source into groups of adjacent fragments, each a source that can be sent to a worker.

    A group has about two million rows, or fewer if the table is too small for all workers.
    """
    least = min(GROUP_ROWS, -(-source.n_rows // (TASKS * n_workers)))
    group: list[int] = []
    n_rows = 0
    for index, fragment in enumerate(source.fragments):
        group.append(index)
        n_rows += fragment.n_rows
        if n_rows >= least:
            yield source.carved(group)
            group, n_rows = [], 0
    if group:
        yield source.carved(group)


def collect_on_worker(empty: Statistic, group: Source) -> pa.Table:
    """Collect the statistic of a group; runs on a worker."""
    return collect(empty, group, threads=1).to_arrow()


def sum_worker_statistics(empty: Statistic, tables: Sequence[pa.Table]) -> pa.Table:
    """Merge statistics; runs on a worker."""
    whole = empty.empty()
    for table in tables:
        whole.merge(empty.empty().from_arrow(table))
    return whole.to_arrow()


def _ended(futures: Sequence[Future]) -> Iterator[Future]:
    """Yield futures as they finish; raises the error of the first that failed."""
    from distributed import as_completed

    for future in as_completed(futures):
        if future.status == "error":
            raise _readable(future.exception())
        yield future


def _readable(error: BaseException) -> BaseException:
    """Translate errors of the cluster to readable ones; errors of the data are unchanged."""
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        return ClusterError(
            "(workers)", "workers keep dying on the same rows; see their logs (the usual cause is memory)"
        )
    if isinstance(error, CommClosedError):
        return ClusterError("(scheduler)", f"the connection was lost ({error})")
    return error
