from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from deployments.gateway.control_tokens import any_of


@given(
    st.frozensets(st.text("<|ab>", min_size=1, max_size=5), max_size=12),
    st.text("<|ab>", max_size=30),
)
def test_control_tokens_are_found_as_by_a_plain_alternation(
    tokens: frozenset[str], text: str
) -> None:
    longest_first = sorted(tokens, key=len, reverse=True)
    plain = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    assert any_of(tokens).findall(text) == plain.findall(text)
