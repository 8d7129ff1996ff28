"""Whose key a prompt's blocks get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deployments.gateway.naming import Naming, key_path
from deployments.gateway.prompts import Prompt
from deployments.gateway.refusals import ContextLengthExceeded
from deployments.gateway.timing import StageTimer
from freehold.errors import InvalidRequest
from freehold.kv.keys import ModelIdentity, block_keys, boundary_key, root_key
from tests.support.gateway import make_card, tiny_tokenizer
from tests.support.tenants import MemoryControlPlane

if TYPE_CHECKING:
    from freehold.protocol import AccountId

PLANE = MemoryControlPlane()
KEYRING = PLANE.keyring()
ALICE = PLANE.create_tenant("alice").account_id
BOB = PLANE.create_tenant("bob").account_id
CARD = make_card(block_size=16)
TOKENS = tuple(range(40))


def naming(account_id: AccountId = ALICE, cache_salt: str | None = None, most: int = 100) -> Naming:
    path = key_path(KEYRING, account_id, cache_salt)
    return Naming(CARD, tiny_tokenizer(), path, most, StageTimer(lambda: 0.0))


def keys(account_id: AccountId, cache_salt: str | None = None) -> tuple[bytes, ...]:
    return naming(account_id, cache_salt).prompt(Prompt("prompt", TOKENS)).chain.block_keys


def test_every_full_block_is_named_after_its_tenant() -> None:
    expected = block_keys(
        TOKENS,
        block_size=16,
        model=ModelIdentity(CARD.fingerprint),
        tail=KEYRING.tenant_domain(ALICE),
    )

    assert keys(ALICE) == expected.block_keys
    assert len(expected.block_keys) == 2


def test_tenants_and_end_users_share_nothing_and_each_finds_its_own() -> None:
    domains = [
        keys(ALICE),
        keys(ALICE, "user-1"),
        keys(ALICE, "user-2"),
        keys(BOB),
        keys(BOB, "user-1"),
    ]

    assert len({key for domain in domains for key in domain}) == 10
    assert keys(ALICE, "user-1") == domains[1]


def test_an_end_user_is_inside_its_tenant() -> None:
    """The tenant's salt is the chain's root; the client's salt only comes on top."""
    chain = naming(ALICE, "user-1").prompt(Prompt("prompt", TOKENS[:15])).chain
    root = root_key(KEYRING.tenant_domain(ALICE).salt, ModelIdentity(CARD.fingerprint))
    end_user = KEYRING.end_user_domain(ALICE, "user-1")

    assert chain.next_parent == boundary_key(root, end_user.salt)
    assert chain.tail == end_user.owner


def test_a_prompt_may_fill_the_context_to_the_last_position_but_one() -> None:
    assert naming(most=40).prompt(Prompt("prompt", TOKENS)).token_ids == TOKENS

    with pytest.raises(ContextLengthExceeded) as caught:
        naming(most=39).prompt(Prompt("prompt[2]", TOKENS))

    assert caught.value.param == "prompt[2]"


def test_token_ids_must_be_the_models() -> None:
    naming().prompt(Prompt("prompt", (CARD.vocab_size - 1,)))

    with pytest.raises(InvalidRequest, match=f"below {CARD.vocab_size}"):
        naming().prompt(Prompt("prompt", (CARD.vocab_size,)))
