from __future__ import annotations

import pytest

from deployments.gateway.prompts import Prompt, parse_prompts
from freehold.errors import InvalidRequest


@pytest.mark.parametrize(
    ("wire", "prompts"),
    [
        ("Hi", [Prompt("prompt", "Hi")]),
        ([5, 6], [Prompt("prompt", (5, 6))]),
        (["Hi", "Ho"], [Prompt("prompt[0]", "Hi"), Prompt("prompt[1]", "Ho")]),
        ([[5], [6, 7]], [Prompt("prompt[0]", (5,)), Prompt("prompt[1]", (6, 7))]),
        (["Hi", [5]], [Prompt("prompt[0]", "Hi"), Prompt("prompt[1]", (5,))]),
    ],
)
def test_tells_text_ids_and_lists_apart(wire: object, prompts: list[Prompt]) -> None:
    assert list(parse_prompts(wire, max_prompts=2)) == prompts


def test_bounds_the_number_of_prompts() -> None:
    with pytest.raises(InvalidRequest, match="at most 2"):
        parse_prompts(["a", "b", "c"], max_prompts=2)
