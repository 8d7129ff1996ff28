from __future__ import annotations

import pytest

from deployments.gateway.fields import FieldTable, shown
from deployments.gateway.refusals import UnknownParameter, UnsupportedParameter

TABLE = FieldTable(frozenset({"model", "max_tokens"}), {"tools": ([],), "suffix": ()})


def test_keeps_known_members_that_are_not_null() -> None:
    assert TABLE.present({"model": "m", "max_tokens": None}) == {"model": "m"}


@pytest.mark.parametrize("neutral", [None, []])
def test_a_refused_field_with_a_neutral_value_is_as_good_as_absent(neutral: object) -> None:
    assert TABLE.present({"tools": neutral}) == {}


def test_a_refused_field_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        TABLE.present({"suffix": "x"}, "a.")

    assert caught.value.param == "a.suffix"


def test_an_unknown_field_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownParameter, match="'max_tokens'"):
        TABLE.present({"max_token": 5})


def test_null_does_not_make_an_unknown_field_known() -> None:
    with pytest.raises(UnknownParameter):
        TABLE.present({"zzz": None})


def test_a_strange_name_is_shown_short_and_in_ascii() -> None:
    assert shown("é\n" + "x" * 1000) == "\\xe9\n" + "x" * 62
