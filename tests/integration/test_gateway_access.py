"""Who gets an answer at all, under which names, and what is written down about it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from deployments.gateway.ports import Readiness
from tenancy.principal import Scope
from tests.support.gateway import MODEL, GatewayWorld

if TYPE_CHECKING:
    import httpx

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


def code(response: httpx.Response) -> str:
    return response.json()["error"]["code"]  # type: ignore[no-any-return]  # JSON


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", CHAT),
        ("GET", CHAT),
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/v1/models/tiny"),
        ("GET", "/v1/models/other"),
        ("GET", "/v1"),
        ("GET", "/v1/"),
        ("POST", "/v1/embeddings"),
        ("DELETE", "/v1/no/such/path"),
    ],
)
async def test_without_a_key_every_path_looks_the_same(
    world: GatewayWorld, method: str, path: str
) -> None:
    async with world.client("") as client:
        response = await client.request(method, path)

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert code(response) == "invalid_api_key"


async def test_a_body_is_not_read_for_a_stranger(world: GatewayWorld) -> None:
    async with world.client("") as client:
        response = await client.post(CHAT, content=b"x" * 10_000_000)

    assert response.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/no/such/path", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("DELETE", "/v1/models/tiny", 405),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
        ("POST", "/health", 405),
    ],
)
async def test_with_a_key_wrong_paths_are_told_apart(
    world: GatewayWorld, method: str, path: str, status: int
) -> None:
    async with world.client() as client:
        response = await client.request(method, path)

    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert (status == 405) == ("allow" in response.headers)


async def test_either_header_and_no_contradiction(world: GatewayWorld) -> None:
    async with world.client("") as client:
        alone = await client.post(CHAT, json=BODY, headers={"x-api-key": world.alice_key})
        two = await client.post(
            CHAT,
            json=BODY,
            headers={
                "x-api-key": world.alice_key,
                "authorization": f"Bearer {world.bob_key}",
            },
        )

    assert alone.status_code == 200
    assert two.status_code == 401


async def test_revocation_suspension_and_doubt(world: GatewayWorld) -> None:
    async with world.client() as client:
        world.plane.suspend(world.alice.tenant_id)
        assert code(await client.post(CHAT, json=BODY)) == "tenant_suspended"

    async with world.client(world.bob_key) as client:
        world.plane.clock.advance(3600)  # nothing was heard of the directory for an hour
        doubt = await client.post(CHAT, json=BODY)
        assert (doubt.status_code, code(doubt)) == (503, "authentication_unavailable")
        assert doubt.headers["retry-after"]


async def test_an_expired_key(world: GatewayWorld) -> None:
    soon = world.plane.clock.now() + timedelta(seconds=1)
    key = world.plane.issue_key(world.alice.tenant_id, expires_at=soon).reveal()
    world.plane.clock.advance(1)
    async with world.client(key) as client:
        response = await client.post(CHAT, json=BODY)

    assert (response.status_code, code(response)) == (401, "invalid_api_key")
    assert key not in response.text


async def test_an_admins_key_alone_infers_nothing(world: GatewayWorld) -> None:
    key = world.plane.issue_key(world.alice.tenant_id, scopes=frozenset({Scope.ADMIN})).reveal()
    async with world.client(key) as client:
        response = await client.post(CHAT, json=BODY)

    assert (response.status_code, code(response)) == (403, "insufficient_scope")


async def test_the_route_is_explained_to_admins_only(world: GatewayWorld) -> None:
    key = world.plane.issue_key(world.alice.tenant_id, scopes=frozenset(Scope)).reveal()
    async with world.client(key) as admin, world.client() as user:
        explained = await admin.post(CHAT, json=BODY)
        plain = await user.post(CHAT, json=BODY)

    assert explained.headers["x-freehold-route"] == (
        "replica=replica-1; hit_tokens=16; predicted_ms=50.0; reason=prefix"
    )
    assert "x-freehold-route" not in plain.headers


@pytest.mark.parametrize(
    "header",
    [
        "x-request-disconnect-disabled",
        "x-request-timeout-seconds",
        "serve_multiplexed_model_id",
        "x-serve-router-hint",
    ],
)
async def test_headers_that_steer_serve_are_refused(world: GatewayWorld, header: str) -> None:
    async with world.client() as client:
        response = await client.post(CHAT, json=BODY, headers={header: "1"})

    assert response.status_code == 400
    assert header in response.json()["error"]["message"]
    assert world.fleet.opened == []


async def test_request_ids_are_ours(world: GatewayWorld) -> None:
    async with world.client() as client:
        answers = [
            await client.post(CHAT, json=BODY, headers={"x-request-id": "chosen"}) for _ in range(2)
        ]

    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 2
    assert "chosen" not in ids
    assert ids == {request.request_id for request in world.fleet.opened}


async def test_behind_a_server_that_names_requests_its_name_is_kept() -> None:
    world = GatewayWorld(adopt_request_id=True)
    with capture_logs() as logs:
        async with world.client() as client:
            answer = await client.post(CHAT, json=BODY, headers={"x-request-id": "outer-1"})
            unnamed = await client.post(CHAT, json=BODY)

    assert "x-request-id" not in answer.headers, "the server in front adds it"
    assert logs[0]["request_id"] == "outer-1"
    assert world.fleet.opened[0].request_id != "outer-1", "nobody chooses an engine's id"
    assert unnamed.headers["x-request-id"] == world.fleet.opened[1].request_id


async def test_health_needs_no_key(world: GatewayWorld) -> None:
    async with world.client("") as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/ready")).json() == {"status": "ready"}

        world.fleet.readiness = Readiness(ready=False, reasons=("no replica is up",))
        waiting = await client.get("/ready")

    assert waiting.status_code == 503
    assert waiting.json() == {"status": "not ready", "reasons": ["no replica is up"]}


async def test_a_model_without_a_replica_is_not_ready(world: GatewayWorld) -> None:
    world.fleet.models = []
    async with world.client() as client:
        response = await client.post(CHAT, json=BODY)
        models = await client.get("/v1/models")

    assert (response.status_code, code(response)) == (503, "model_not_ready")
    assert response.headers["retry-after"]
    assert models.json()["data"] == []


async def test_one_line_a_request_without_secrets(world: GatewayWorld) -> None:
    secrets = ["the-prompt", "the-salt", world.alice_key, "Hello"]
    body = {
        **BODY,
        "messages": [{"role": "user", "content": "the-prompt"}],
        "cache_salt": "the-salt",
    }
    with capture_logs() as logs:
        async with world.client() as client:
            await client.post(CHAT, json=body)
            await client.post(CHAT, json={**body, "temperature": "the-prompt"})
            await client.post(CHAT, json=body, headers={"x-api-key": world.bob_key})

    assert [line["status"] for line in logs] == [200, 400, 401]
    answered, refused, _ = logs
    assert answered["tenant_id"] == "alice"
    assert answered["model"] == MODEL
    assert answered["output_tokens"] == 2
    assert answered["outcome"] == "completed"
    assert refused["param"] == "temperature"
    assert not [secret for secret in secrets if secret in str(logs)]
