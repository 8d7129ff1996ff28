from __future__ import annotations

from freehold.kv.events import AllBlocksCleared, BlockEvent, BlockRemoved, BlockStored, EventLog
from freehold.protocol import DEVICE, AccountId, BlockKey

A, B = AccountId("tn_a"), AccountId("tn_b")


def key(name: str) -> BlockKey:
    return BlockKey(name.encode())


def stored(name: str, parent: str | None = None, account: AccountId = A) -> BlockStored:
    return BlockStored((key(name),), key(parent) if parent else None, 16, account)


def removed(name: str, account: AccountId = A) -> BlockRemoved:
    return BlockRemoved((key(name),), account)


def make_log(max_events: int = 100, *, state: tuple[BlockStored, ...] = ()) -> EventLog:
    return EventLog(max_events, lambda: state)


def test_a_chain_is_told_as_one_event() -> None:
    log = make_log()
    for event in (stored("1"), stored("2", "1"), stored("3", "2")):
        log.append(event)
    assert log.drain() == [BlockStored((key("1"), key("2"), key("3")), None, 16, A, DEVICE)]


def test_a_run_ends_at_another_parent_or_account() -> None:
    log = make_log()
    events: list[BlockEvent] = [
        stored("1"),
        stored("3", "2"),
        stored("4", "3", B),
        removed("1"),
        removed("3", B),
    ]
    for event in events:
        log.append(event)
    assert log.drain() == events


def test_removals_of_one_account_are_told_as_one_event_in_order() -> None:
    log = make_log()
    log.append(removed("2"))
    log.append(removed("1"))
    assert log.drain() == [BlockRemoved((key("2"), key("1")), A)]


def test_order_between_kinds_is_kept() -> None:
    log = make_log()
    events: list[BlockEvent] = [stored("1"), removed("1"), stored("1")]
    for event in events:
        log.append(event)
    assert log.drain() == events


def test_draining_empties_the_log() -> None:
    log = make_log()
    log.append(stored("1"))
    log.drain()
    assert log.drain() == []


def test_an_overflowing_log_tells_the_whole_state_instead() -> None:
    state = (stored("7"), stored("8", "7"))
    log = make_log(2, state=state)
    for name in ("1", "2", "3", "4"):
        log.append(stored(name))
    assert log.drain() == [AllBlocksCleared(), BlockStored((key("7"), key("8")), None, 16, A)]
    log.append(removed("7"))
    assert log.drain() == [removed("7")]


def test_events_carry_no_token_ids() -> None:
    fields = set(BlockStored.__dataclass_fields__) | set(BlockRemoved.__dataclass_fields__)
    assert "token_ids" not in fields
    assert {"block_hashes", "parent_block_hash", "block_size", "medium", "account_id"} == fields
