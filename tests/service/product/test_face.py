"""The face of the product: each of its verbs is there, lazily, and none is hidden by a module of its name."""

import pkgutil

import pytest

from service import product


def test_every_verb_is_a_function_even_when_all_modules_are_imported():
    modules = {entry.name for entry in pkgutil.iter_modules(product.__path__)}
    assert not modules & set(product.__all__), "a module would hide the verb of its name once it is imported"
    for name in product.__all__:
        assert callable(getattr(product, name))


def test_an_unknown_verb_is_named():
    with pytest.raises(AttributeError, match=r"^No service\.product attribute trian$"):
        product.trian  # noqa: B018
