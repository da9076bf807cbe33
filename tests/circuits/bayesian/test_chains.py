import threading
from dataclasses import replace

import numpy as np
import pytest

from learners.circuits.bayesian.chains import Phase, chain_phases, run_chains
from learners.circuits.bayesian.circuit_layout import build_circuit_layout
from learners.circuits.bayesian.collapsed_sampler import FileStore, InMemory, NoSpace
from learners.circuits.parameters import GibbsParameters
from learners.errors import Cancelled
from tests.circuits.bayesian.problems import MIXED, THREE, prior_of, rows_of

COLUMNS = (*THREE, *MIXED)
PARAMETERS = GibbsParameters(iterations=12, draws=6)


def rows():
    return rows_of(COLUMNS, 80).astype(np.float32)


def sampled(store, parameters=PARAMETERS, seed=3, **named):
    prior = prior_of(COLUMNS)
    parameters = replace(parameters, whole_moves=1.0, subtree_moves=2.0)
    return run_chains(prior, build_circuit_layout(prior), store, parameters, seed=(seed,), **named)


def same(a, b):
    arrays = zip((a.draws, a.mean, a.trace, *a.choices), (b.draws, b.mean, b.trace, *b.choices), strict=True)
    return all(np.array_equal(x, y) for x, y in arrays)


def test_draws_of_a_phase_are_evenly_spaced_and_end_with_it():
    assert Phase(10, 20).draws_at(5) == [12, 14, 16, 18, 20]
    assert Phase(10, 13).draws_at(5) == [11, 12, 13]
    assert chain_phases(GibbsParameters(iterations=30)) == [Phase(15, 30)]
    assert chain_phases(GibbsParameters(most_iterations=800)) == [Phase(100, 200), Phase(200, 400), Phase(400, 800)]


def test_a_run_depends_on_its_seed_alone(tmp_path):
    run = sampled(InMemory(rows()))
    assert run.draws.shape == (6, build_circuit_layout(prior_of(COLUMNS)).n_parameters)
    assert run.trace.shape == (2, 12, 7)
    assert same(run, sampled(InMemory(rows()), threads=2))
    assert same(run, sampled(FileStore.written(tmp_path / "run", [rows()[:30], rows()[30:]], 5), threads=2))
    assert not same(run, sampled(InMemory(rows()), seed=4))
    assert not np.array_equal(run.choices[0], run.choices[1])


@pytest.mark.parametrize("sweeps", [1, 7, 11])
def test_a_run_that_was_killed_goes_on_and_comes_to_the_same(tmp_path, monkeypatch, sweeps):
    """Ended in the middle of whatever sweep is under way, in both chains, and a second time in another folder."""
    run = sampled(InMemory(rows()))
    store, n_saved = FileStore.written(tmp_path / "run", [rows()], 5), threading.Semaphore(2 * sweeps)
    saved = store.save

    def dying(chain, kept):
        if not n_saved.acquire(blocking=False):
            raise KeyboardInterrupt
        saved(chain, kept)

    monkeypatch.setattr(store, "save", dying)
    with pytest.raises(KeyboardInterrupt):
        sampled(store)
    again = FileStore(tmp_path / "run", 5)
    assert any(again.load(chain) is not None for chain in range(2))
    assert same(run, sampled(again))
    assert same(run, sampled(FileStore(tmp_path / "run", 5)))  # what is complete is not made again


def test_what_was_kept_and_is_damaged_is_made_again(tmp_path):
    run = sampled(InMemory(rows()))
    folder = tmp_path / "run"
    sampled(FileStore.written(folder, [rows()], 5))
    for chain in range(2):
        for state in (folder / f"chain-{chain}").glob("choices-*"):
            content = bytearray(state.read_bytes())
            content[3] ^= 1
            state.write_bytes(content)
    (folder / "chain-1" / "note.json").write_text("{")
    store = FileStore(folder, 5)
    assert store.load(0) is None and store.load(1) is None
    assert same(run, sampled(store))


def test_progress_tells_the_log_joint_and_what_was_accepted_and_may_cancel(monkeypatch):
    monkeypatch.setattr("learners.passes.threads.REPORT_EVERY_S", 0.001)
    reports = []
    sampled(InMemory(rows()), GibbsParameters(iterations=400), advance=lambda *each: reports.append(each))
    assert any("log joint -" in note and "% of trees and" in note for _, _, note in reports)
    assert all(done <= total == 800 for done, total, _ in reports)

    def cancel(done, total, note=""):
        raise Cancelled

    with pytest.raises(Cancelled):
        sampled(InMemory(rows()), GibbsParameters(iterations=1_000_000), advance=cancel)


def test_auto_ends_when_chains_agree_or_at_its_budget():
    """Two chains over a few rows mix at once."""
    run = sampled(InMemory(rows()[:6]), GibbsParameters(effective=50, most_iterations=3200, draws=10))
    found = run.diagnostics
    assert found.is_settled and found.r_hat <= 1.1 and found.effective >= 50
    assert found.n_sweeps in (200, 400, 800, 1600, 3200)
    assert run.trace.shape == (2, found.n_sweeps, 7)
    assert 0 < found.whole_acceptance < 1 and 0 < found.subtree_acceptance < 1
    parameters = GibbsParameters(effective=1_000_000, most_iterations=400, draws=10)
    found = sampled(InMemory(rows()), parameters).diagnostics
    assert not found.is_settled and found.n_sweeps == 400


def test_a_disk_without_room_is_told(tmp_path, monkeypatch):
    store = FileStore.written(tmp_path / "run", [rows()], 5)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(NoSpace, match=r"MiB for rows and states in .*run.*Make room, use fewer chains"):
        store.require_room(2, 9, 10_000)
