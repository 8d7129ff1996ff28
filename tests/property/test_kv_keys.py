"""Keys name exactly one thing: the tokens, the salts above them and the model."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from freehold.kv.keys import Chain, Domain, ModelIdentity, Span, block_keys, extend
from freehold.protocol import AccountId, EpochId, Owner
from freehold.secret import Secret

BLOCK_SIZE = 4
MODEL = ModelIdentity("fingerprint")

token_ids = st.lists(st.integers(0, 2**32 - 1), max_size=20)
salts = st.binary(min_size=1, max_size=4)


def domain(salt: bytes, account: str = "tn_a") -> Domain:
    return Domain(Owner(AccountId(account), EpochId("e1")), Secret(salt))


def keys_of(
    tokens: list[int], salt: bytes, model: ModelIdentity = MODEL, spans: tuple[Span, ...] = ()
) -> Chain:
    return block_keys(tokens, block_size=BLOCK_SIZE, model=model, tail=domain(salt), spans=spans)


@given(token_ids, salts, salts)
def test_different_salts_never_share_a_key(tokens: list[int], left: bytes, right: bytes) -> None:
    first, second = keys_of(tokens, left), keys_of(tokens, right)
    shared = {*first.block_keys, first.next_parent} & {*second.block_keys, second.next_parent}
    assert bool(shared) == (left == right)


@given(
    token_ids, st.text(max_size=3), st.text(max_size=3), st.text(max_size=3), st.text(max_size=3)
)
def test_different_models_never_share_a_key(
    tokens: list[int], name_1: str, adapter_1: str, name_2: str, adapter_2: str
) -> None:
    left, right = ModelIdentity(name_1, adapter_1), ModelIdentity(name_2, adapter_2)
    first, second = keys_of(tokens, b"salt", left), keys_of(tokens, b"salt", right)
    assert (first.next_parent == second.next_parent) == (left == right)


@given(token_ids, token_ids)
def test_two_prompts_share_exactly_the_keys_of_their_common_blocks(
    left: list[int], right: list[int]
) -> None:
    first, second = keys_of(left, b"salt").block_keys, keys_of(right, b"salt").block_keys
    common = 0
    for end in range(BLOCK_SIZE, min(len(left), len(right)) + 1, BLOCK_SIZE):
        if left[:end] != right[:end]:
            break
        common = end // BLOCK_SIZE
    assert first[:common] == second[:common]
    assert not set(first[common:]) & set(second)


@given(st.data(), token_ids)
def test_decode_makes_the_keys_that_a_longer_prompt_would_have(
    data: st.DataObject, tokens: list[int]
) -> None:
    num_prompt = data.draw(st.integers(0, len(tokens)))
    num_public = data.draw(st.integers(0, num_prompt))
    spans = (Span(num_public, domain(b"public", "pb_1")),)
    prompt = keys_of(tokens[:num_prompt], b"salt", spans=spans)
    whole = keys_of(tokens, b"salt", spans=spans)
    keys, parent = list(prompt.block_keys), prompt.next_parent
    for start in range(len(keys) * BLOCK_SIZE, len(tokens) - BLOCK_SIZE + 1, BLOCK_SIZE):
        parent = extend(parent, tokens[start : start + BLOCK_SIZE])
        keys.append(parent)
    assert tuple(keys) == whole.block_keys
    assert parent == whole.next_parent


@given(token_ids, st.lists(st.integers(0, 20), max_size=3))
def test_regions_are_sorted_and_round_down_to_blocks(tokens: list[int], ends: list[int]) -> None:
    ends = sorted(end for end in ends if end <= len(tokens))
    spans = tuple(Span(end, domain(b"%d" % i, f"gr_{i}")) for i, end in enumerate(ends))
    chain = keys_of(tokens, b"salt", spans=spans)
    assert len(chain.block_keys) == len(tokens) // BLOCK_SIZE
    starts = [0, *(region.end_block for region in chain.regions)]
    assert starts == sorted(set(starts))
    for region in chain.regions:
        number = int(region.account_id.removeprefix("gr_"))
        assert region.end_block == ends[number] // BLOCK_SIZE
