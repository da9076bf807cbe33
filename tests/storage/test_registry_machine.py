"""The registry against a model of it that is a dict and a few lists: any order of calls, the same answers."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.control.control import control_generation, open_control
from storage.errors import Conflict, NotFound
from storage.models.aliases import alias_history, delete_alias, roll_back, set_alias, versions_by_alias
from storage.models.model_versions import get_version, list_model_versions
from storage.models.promotions import Promotion, list_promotions, record_promotion
from storage.models.removal import delete_model, delete_model_version, delete_unretained_versions
from tests.machines import memory_folder
from tests.storage.conftest import new_version

NAME = "adult"
ALIASES = st.sampled_from(["champion", "shadow"])
NUMBERS = st.integers(1, 6)


class Registry(RuleBasedStateMachine):
    """One model with two aliases; `paths` holds where each alias may roll back to, the present version last."""

    def __init__(self):
        super().__init__()
        self.folder = memory_folder()
        self.control = open_control(f"sqlite:///{Path(self.folder.name)}/control.sqlite")
        self.versions: set[int] = set()
        self.n_made = 0
        self.paths: dict[str, list[int]] = {}
        self.n_moves = self.n_decisions = 0
        self.generation = control_generation(self.control)

    def teardown(self):
        self.control.close()
        self.folder.cleanup()

    @initialize()
    def first(self):
        self.add()

    @precondition(lambda self: self.n_made < 6)
    @rule()
    def add(self):
        self.n_made += 1
        assert new_version(self.control, NAME).version == self.n_made  # a number is never used again
        self.versions.add(self.n_made)

    def _refused(self, error, match, call, *given):
        with pytest.raises(error, match=match):
            call(self.control, *given)

    def _point(self, alias, version):
        path = self.paths.setdefault(alias, [])
        if not path or path[-1] != version:
            path.append(version)
            self.n_moves += 1

    @rule(alias=ALIASES, version=NUMBERS)
    def move(self, alias, version):
        if version not in self.versions:
            self._refused(NotFound, "There is no", set_alias, NAME, alias, version)
            return
        set_alias(self.control, NAME, alias, version)
        self._point(alias, version)

    @rule(alias=ALIASES)
    def back(self, alias):
        path = self.paths.get(alias)
        if path is None:
            self._refused(NotFound, "There is no", roll_back, NAME, alias)
            return
        before = [version for version in path[:-1] if version in self.versions]
        if not before:
            self._refused(Conflict, "has no previous version. Point it at a version instead", roll_back, NAME, alias)
            return
        while path.pop() is not None and path[-1] not in self.versions:
            pass
        assert roll_back(self.control, NAME, alias) == path[-1]
        self.n_moves += 1

    @rule(alias=ALIASES)
    def forget_alias(self, alias):
        if alias not in self.paths:
            self._refused(NotFound, "There is no", delete_alias, NAME, alias)
            return
        delete_alias(self.control, NAME, alias)
        del self.paths[alias]

    @rule(alias=ALIASES, challenger=NUMBERS, champion=NUMBERS | st.none(), is_promoted=st.booleans())
    def decide(self, alias, challenger, champion, is_promoted):
        path = self.paths.get(alias)
        job_id = f"job-{self.n_decisions}"
        decision = Promotion(NAME, alias, challenger, champion, is_promoted, "", {}, None, None, {}, job_id)
        if champion != (path[-1] if path else None):
            self._refused(Conflict, "moved in the meantime", record_promotion, decision)
        elif is_promoted and challenger not in self.versions:
            self._refused(NotFound, "There is no", record_promotion, decision)
        else:
            record_promotion(self.control, decision)
            self.n_decisions += 1
            if is_promoted:
                self._point(alias, challenger)

    @rule(version=NUMBERS)
    def delete(self, version):
        if version not in self.versions:
            self._refused(NotFound, "There is no", delete_model_version, NAME, version)
        elif any(path[-1] == version for path in self.paths.values()):
            self._refused(Conflict, "lias", delete_model_version, NAME, version)
        else:
            delete_model_version(self.control, NAME, version)
            self.versions.discard(version)

    @precondition(lambda self: self.versions)
    @rule(keep=st.integers(1, 4))
    def prune(self, keep):
        aliased = {path[-1] for path in self.paths.values()}
        gone = set(sorted(self.versions, reverse=True)[keep:]) - aliased
        assert {version.version for version in delete_unretained_versions(self.control, NAME, keep)} == gone
        self.versions -= gone

    @rule()
    def delete_all(self):
        if not self.versions:
            self._refused(NotFound, "There is no", delete_model, NAME)
            return
        gone = [version.version for version in delete_model(self.control, NAME)]
        assert gone == sorted(self.versions, reverse=True)
        self.versions, self.paths, self.n_moves, self.n_decisions = set(), {}, 0, 0

    @invariant()
    def is_as_expected(self):
        assert dict(versions_by_alias(self.control, NAME)) == {alias: path[-1] for alias, path in self.paths.items()}
        if self.versions:
            listed = {version.version for version in list_model_versions(self.control, NAME).items}
            assert listed == self.versions
            champion = self.paths.get("champion", [max(self.versions)])[-1]
            assert get_version(self.control, NAME).version == champion
        assert len(alias_history(self.control, NAME, 1000).items) == self.n_moves
        assert len(list_promotions(self.control, NAME, 1000).items) == self.n_decisions
        before, self.generation = self.generation, control_generation(self.control)
        assert self.generation >= before


Registry.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestRegistry = Registry.TestCase
