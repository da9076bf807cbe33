"""The only module that defines the codes of missing values: null, absent, unseen, and other.

The codes of an attribute are, in this order:

- null, if training saw nulls or NaN;
- the values of a nominal attribute, or the intervals of a numeric one;
- other: the rare values of training, if some were folded;
- unseen: one more than the domain has, for a value that training did not have, and for a column that is absent.

Whoever needs an offset asks for `first_code`. What a prediction does with a null is the policy of
`learners.classifiers.lookup.completeness`; `learners.registry.sql` writes scripts by the same codes.
"""

from abc import ABC, abstractmethod
from functools import cached_property


class CodeLayout(ABC):
    """The codes of an attribute. A subclass has the two fields, and says how many values or intervals there are."""

    has_missing: bool
    n_folded: int

    @property
    @abstractmethod
    def n_regular(self) -> int:
        """Number of values or intervals, without null and other."""

    @cached_property
    def n_values(self) -> int:
        """Number of codes, including missing and folded, excluding the unseen code."""
        return self.first_code + self.n_regular + int(self.n_folded > 0)

    @property
    def first_code(self) -> int:
        """Code of the first value or interval; the number of codes for null, 0 or 1."""
        return int(self.has_missing)

    @property
    def missing_code(self) -> int:
        """Code of null: 0 if training saw missing values, else the code of an absent value."""
        return 0 if self.has_missing else self.n_values

    @property
    def absent_code(self) -> int:
        """Code of a column that is not there."""
        return self.n_values

    @property
    def unseen_code(self) -> int:
        """Code of values outside the domain: the folded code if there is one."""
        return self.n_values - 1 if self.n_folded else self.n_values
