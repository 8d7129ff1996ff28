"""The identity chain over a real engine: who finds what in the cache. Always in pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from deployments.gateway.services import GatewayLimits
from tests.support.gateway import MODEL, GatewayWorld
from tests.support.local_fleet import LocalFleet

if TYPE_CHECKING:
    from collections.abc import Iterator

STORY = "It was a dark and stormy night, and the captain said to his men: "


@pytest.fixture
def world() -> Iterator[GatewayWorld]:
    fleet = LocalFleet()
    yield GatewayWorld(fleet=fleet)
    fleet.close()


async def ask(world: GatewayWorld, key: str, **fields: object) -> tuple[str, int]:
    """The answer, and how many tokens of the prompt were cached."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": STORY * 3}],
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
        **fields,
    }
    async with world.client(key) as client:
        response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    usage = answer["usage"]
    assert usage["completion_tokens"] == 8
    return (
        answer["choices"][0]["message"]["content"],
        usage["prompt_tokens_details"]["cached_tokens"],
    )


async def test_a_tenant_finds_its_own_and_no_other_does(world: GatewayWorld) -> None:
    cold, first = await ask(world, world.alice_key)
    warm, again = await ask(world, world.alice_key)
    other, stranger = await ask(world, world.bob_key)

    assert (first, stranger) == (0, 0)
    assert again > 0
    assert again % 16 == 0
    assert cold == warm == other, "reuse changes no token"


async def test_an_end_user_finds_its_own_and_nobody_elses(world: GatewayWorld) -> None:
    await ask(world, world.alice_key)
    _, ann_first = await ask(world, world.alice_key, cache_salt="ann")
    _, ann_again = await ask(world, world.alice_key, cache_salt="ann")
    _, ben = await ask(world, world.alice_key, cache_salt="ben")
    _, bobs_ann = await ask(world, world.bob_key, cache_salt="ann")

    assert (ann_first, ben, bobs_ann) == (0, 0, 0)
    assert ann_again > 0


async def test_a_long_prompt_from_the_thread_finds_what_the_loop_stored(
    world: GatewayWorld,
) -> None:
    in_thread = GatewayWorld(GatewayLimits(max_inline_chars=0), fleet=world.services.fleet)
    in_thread.app.state.services = replace(
        in_thread.services,
        authenticator=world.services.authenticator,
        keyring=world.services.keyring,
    )
    inline, _ = await ask(world, world.alice_key)
    threaded, cached = await ask(in_thread, world.alice_key)

    assert inline == threaded
    assert cached > 0


async def test_a_new_epoch_makes_every_hit_a_miss(world: GatewayWorld) -> None:
    await ask(world, world.alice_key)
    _, before = await ask(world, world.alice_key)
    world.plane.new_epoch(world.alice.account_id)
    _, after = await ask(world, world.alice_key)

    assert before > 0
    assert after == 0


async def test_cache_modes(world: GatewayWorld) -> None:
    for mode in ("off", "no-store"):
        await ask(world, world.alice_key, cache=mode)
    _, stored_nothing = await ask(world, world.alice_key)
    _, off = await ask(world, world.alice_key, cache="off")
    _, no_store = await ask(world, world.alice_key, cache="no-store")

    assert (stored_nothing, off) == (0, 0)
    assert no_store > 0


async def test_choices_and_stops_come_through(world: GatewayWorld) -> None:
    text, _ = await ask(world, world.alice_key)
    async with world.client() as client:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": STORY * 3}],
            "temperature": 0,
            "stop": text[2],
            "n": 2,
            "logprobs": True,
            "top_logprobs": 2,
        }
        answer = (await client.post("/v1/chat/completions", json=body)).json()

    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    for choice in answer["choices"]:
        assert choice["message"]["content"] == text[: text.index(text[2])]
        assert choice["finish_reason"] == "stop"
        assert all(len(token["top_logprobs"]) == 2 for token in choice["logprobs"]["content"])


async def test_what_can_never_fit_the_pool_is_refused_in_the_clients_terms() -> None:
    fleet = LocalFleet(num_blocks=4)
    world = GatewayWorld(fleet=fleet)
    try:
        async with world.client() as client:
            chat = await client.post(
                "/v1/chat/completions",
                json={"model": MODEL, "messages": [{"role": "user", "content": STORY * 3}]},
            )
            prompt = await client.post(
                "/v1/completions", json={"model": MODEL, "prompt": "Hi", "max_tokens": 100}
            )
    finally:
        fleet.close()

    assert (chat.status_code, chat.json()["error"]["param"]) == (400, "messages")
    assert (prompt.status_code, prompt.json()["error"]["param"]) == (400, "max_tokens")
