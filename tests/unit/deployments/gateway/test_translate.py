from __future__ import annotations

import pytest

from deployments.gateway.errors import to_wire
from deployments.gateway.translate import in_wire_terms
from freehold.errors import InvalidRequest


@pytest.mark.parametrize(
    ("engines", "status", "wires"),
    [
        ("token_ids", 400, "messages"),
        ("max_tokens", 400, "max_tokens"),
        ("n", 400, "n"),
        ("fingerprint", 503, None),
        ("block_keys", 500, None),
        ("regions", 500, None),
    ],
)
def test_an_engine_blames_in_its_own_terms(engines: str, status: int, wires: str | None) -> None:
    wire = to_wire(in_wire_terms(InvalidRequest(engines, "does not fit"), "messages"))

    assert (wire.verdict.status, wire.param) == (status, wires)
