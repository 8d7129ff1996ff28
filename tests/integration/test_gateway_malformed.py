"""Bad input: every request gets a 4xx that names the field, and the service goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deployments.gateway.services import GatewayLimits
from tests.support.gateway import GatewayWorld, refusing_tokenizer
from tests.support.malformed import CHAT, GOOD_CHAT, MALFORMED

if TYPE_CHECKING:
    from tests.support.malformed import Malformed


@pytest.fixture
def world() -> GatewayWorld:
    limits = GatewayLimits(max_body_bytes=256 * 1024)
    return GatewayWorld(limits, tokenizer=refusing_tokenizer("REFUSE"))


def test_the_table_is_long_and_every_name_is_its_own() -> None:
    assert len(MALFORMED) >= 60
    assert len({case.name for case in MALFORMED}) == len(MALFORMED)


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
async def test_refuses_with_the_field_and_goes_on(world: GatewayWorld, case: Malformed) -> None:
    async with world.client() as client:
        response = await client.post(case.path, content=case.body)

        assert response.status_code == case.status, response.text
        error = response.json()["error"]
        assert error["param"] == case.param
        assert error["code"] == case.code
        assert error["type"] == "invalid_request_error"
        assert len(error["message"]) < 1000, "a refusal does not send the request back"
        assert response.headers["x-request-id"]
        assert world.fleet.opened == []
        assert world.admission.demands == []

        good = await client.post(CHAT, content=GOOD_CHAT + b"}")
        assert good.status_code == 200
