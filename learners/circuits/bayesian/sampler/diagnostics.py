"""Whether chains have settled: effective sample size and R-hat, which ArviZ computes, and acceptance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.kernels.arrays import Array, Floats

MOST_R_HAT = 1.1


@dataclass(frozen=True)
class Diagnostics:
    """Of the phase whose draws are kept."""

    n_sweeps: int  # of each chain in all, those of earlier phases among them
    r_hat: float | None  # of the log joint, rank-normalised; None of a single chain
    effective: float  # effective sample size of the log joint
    is_settled: bool  # whether R-hat is at most 1.1, and the effective sample size what was asked for
    # whole_acceptance, subtree_acceptance: accepted among the proposals that change something; None without any.
    whole_acceptance: float | None
    subtree_acceptance: float | None


def diagnosed(trace: Floats, n_sweeps: int, effective: int) -> Diagnostics:
    """Diagnostics of a phase, from its trace (n_chains, n_sweeps, 7), see `store.Kept`, after n_sweeps in all.

    References: Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding, and localization: an
    improved R-hat".
    """
    # Here, as it takes most of a second to import, which only who samples shall wait for.
    from arviz_stats.base.array import array_stats

    logs = trace[:, :, 0]
    n_effective, r_hat = float("nan"), None
    if logs.shape[1] >= 4 and np.ptp(logs) > 0:
        n_effective = float(array_stats.ess(logs, method="bulk"))
        if len(logs) > 1:
            r_hat = float(array_stats.rhat(logs))
    is_settled = r_hat is not None and r_hat <= MOST_R_HAT and n_effective >= effective
    whole, subtree = (acceptance(trace[:, :, first : first + 3]) for first in (1, 4))
    return Diagnostics(n_sweeps, r_hat, n_effective, is_settled, whole, subtree)


def acceptance(proposals: Array) -> float | None:
    """Accepted among the proposals (…, 3) that change something; None without any."""
    _, rejected, accepted = proposals.reshape(-1, 3).sum(axis=0).tolist()
    return accepted / (rejected + accepted) if rejected + accepted else None
