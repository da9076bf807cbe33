"""The judgement of a soak: growth is found, and a process that was replaced counts from its own beginning."""

from load_tests.soak import slopes

HOUR = 3600.0


def sample(at, **held):
    found = {
        name: ("forked", {"megabytes": value, "descriptors": 10.0, "threads": 4.0}) for name, value in held.items()
    }
    return at, found


def test_a_leak_is_its_slope_and_what_is_flat_has_none():
    told = slopes([sample(HOUR * i / 20, leaks=100 + 5.0 * i, flat=50) for i in range(21)])
    by_name = {one["process"]: one for one in told}
    assert by_name["leaks"]["megabytes"]["per_hour"] == 100 and by_name["flat"]["megabytes"]["per_hour"] == 0
    assert by_name["leaks"]["threads"] == {"first": 4, "last": 4, "per_hour": 0}


def test_the_beginning_does_not_count_and_neither_does_what_lives_for_seconds():
    grown = [sample(HOUR * i / 30, warms=min(i, 10) * 100.0) for i in range(31)]
    grown[20][1]["brief"] = ("forked", {"megabytes": 1.0, "descriptors": 1.0, "threads": 1.0})
    (told,) = slopes(grown)
    assert told["process"] == "warms" and told["megabytes"]["per_hour"] == 0
