"""Rules of forgotten rows: what one process has written, no other one loses."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from storage.datasets.forgotten import Forgotten
from storage.errors import CorruptFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "forgotten.json"


def test_rules_made_at_the_same_time_all_stand(path):
    def add(number):
        forgotten = Forgotten(path)
        forgotten.add(f"user = {number}")
        forgotten.remember(f"user = {number}", "file", "footer", number)
        forgotten.save()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert {rule.where for rule in Forgotten(path).rules()} == {f"user = {number}" for number in range(40)}
    assert Forgotten(path).counts("user = 7") == {"file": 7}


def test_what_was_read_before_another_wrote_takes_nothing_back(path):
    first, second = Forgotten(path), Forgotten(path)
    for forgotten, file, n_rows in ((first, "a", 2), (second, "b", 0)):
        forgotten.add("user = 3")
        forgotten.remember("user = 3", file, f"footer of {file}", n_rows)
        forgotten.save()
    assert Forgotten(path).counts("user = 3") == second.counts("user = 3") == {"a": 2, "b": 0}
    assert Forgotten(path).footers("user = 3") == {"footer of a": 2, "footer of b": 0}
    assert Forgotten(path).rules()[0].forgotten_at == first.rules()[0].forgotten_at


def test_a_damaged_file_is_not_written_over(path):
    forgotten = Forgotten(path)
    path.parent.mkdir()
    path.write_text("{")
    forgotten.add("user = 3")
    with pytest.raises(CorruptFile, match="the rules of forgotten rows cannot be read"):
        forgotten.save()
    assert path.read_text() == "{"


def test_the_last_event_counts_whoever_writes_last(path):
    maker = Forgotten(path)
    maker.add("user = 3")
    maker.save()
    searching, withdrawing = Forgotten(path), Forgotten(path)
    searching.remember("user = 3", "a", "footer of a", 2)
    withdrawing.withdraw("user = 3", "ana", "a test")
    withdrawing.save()
    searching.save()
    stored = Forgotten(path)
    assert stored.rules() == () and stored.conditions() == {"user = 3"} and stored.counts("user = 3") == {"a": 2}
    stored.add("user = 3", since=maker.rules()[0].forgotten_at)  # a copy of the rule that was taken back
    assert stored.rules() == ()
    stored.add("user = 3")
    stored.save()
    withdrawing.remember("user = 3", "b", "footer of b", 0)
    withdrawing.save()
    assert [rule.where for rule in Forgotten(path).rules()] == ["user = 3"]
    assert [each["by"] for each in Forgotten(path).withdrawals("user = 3")] == ["ana"]
