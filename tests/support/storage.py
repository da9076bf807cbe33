"""Names that nothing may have."""

HOSTILE = ["", "../etc", "a/b", "a\\b", ".hidden", "A", "é", "a\n", "a" * 65, "a\x00", "\ud800"]


HOSTILE += ["x'; DROP TABLE datasets; --", 'x" OR 1=1']
