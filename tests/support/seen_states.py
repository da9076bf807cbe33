"""What other processes see of a workspace."""


def seen(facts):
    return {name: facts[name] for name in ("versions", "aliases", "rules")}


class Reference:
    """An operation that nothing disturbs: how many calls it makes, and what others see before and after it."""

    def __init__(self, forker, operation):
        forker.reset()
        self.before = forker.ask("facts")
        done = forker.ask(operation)
        assert "error" not in done, done
        self.calls = done["calls"]
        self.after = forker.ask("facts")
        assert self.before["doctor"] == self.after["doctor"] == [], (self.before, self.after)


def same_bits(found, expected):
    """Whether each name means the same bits; a run that was repeated may have taken another number."""

    def told(seen):
        newest = {name.partition("@")[0]: bits for name, bits in sorted(seen["versions"].items(), key=_number)}
        aliases = {
            (name, alias): seen["versions"][f"{name}@{number}"]
            for name, its in seen["aliases"].items()
            for alias, number in its.items()
        }
        return {"newest": newest, "aliases": aliases, "rules": seen["rules"]}

    return told(found) == told(expected)


def _number(item):
    return int(item[0].partition("@")[2])
