"""Who holds how much of the pool, who may take more, and who gives way.

Decides whether an allocation is within floors and ceilings and from which account the next cached
block is evicted. Knows numbers of blocks and their order of use, neither a key nor a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from freehold.kv.eviction import EvictionOrder
from freehold.kv.lazy_heap import LazyHeap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freehold.protocol import AccountId, AccountPolicy, EpochId

MAX_EPOCHS = 256
"""Epochs remembered per account; one that 256 rotations left behind has no sequence any more."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why an allocation is refused now, and whose running sequences should give way to it.

    ``num_blocks`` are missing after every eviction that is allowed. ``victims`` are accounts, the
    first one first: the account itself when its ceiling is reached; those that run most over their
    floors when its own running blocks would stay within its floor; nobody when it has no such
    claim (ask for less, wait, or preempt as the scheduler's own policy has it).
    """

    num_blocks: int
    victims: tuple[AccountId, ...]


@dataclass(slots=True, eq=False)
class Account:
    """The charges of one account."""

    account_id: AccountId
    number: int
    """Order of arrival: breaks ties, so that evictions are reproducible."""
    changed: dict[int, Account] = field(repr=False)
    """Shared by all accounts: those whose charges changed since they were last ranked."""
    policy: AccountPolicy | None = None
    num_active: int = 0
    num_cached: int = 0
    num_claimed: int = 0
    """Blocks that the allocation in progress is about to charge."""
    guard: int = 0
    """Evictions may not take ``num_held`` below this: the floor, or what it held if that is less."""
    ranked_spare: int = 0
    order: EvictionOrder = field(default_factory=EvictionOrder, repr=False)
    epochs: dict[EpochId, bool] = field(default_factory=dict["EpochId", bool], repr=False)
    """Epochs seen here, oldest first; True where purged."""

    @property
    def num_held(self) -> int:
        return self.num_active + self.num_cached + self.num_claimed

    @property
    def floor(self) -> int:
        return self.policy.floor_blocks if self.policy else 0

    @property
    def ceiling(self) -> int | None:
        return self.policy.ceiling_blocks if self.policy else None

    @property
    def num_over_ceiling(self) -> int:
        return 0 if self.ceiling is None else max(0, self.num_held - self.ceiling)

    @property
    def num_spare(self) -> int:
        """Cached blocks that others may take."""
        return min(self.num_cached, max(0, self.num_held - self.guard))

    def weighted(self, num_blocks: int) -> float:
        """So many blocks, over the floor and by weight; an account without weight gives way first."""
        weight = self.policy.weight if self.policy else 1.0
        return (num_blocks - self.floor) / weight if weight > 0 else inf

    def shift(self, *, active: int = 0, cached: int = 0) -> None:
        self.num_active += active
        self.num_cached += cached
        self.changed[self.number] = self

    def see(self, epoch_id: EpochId) -> None:
        self.epochs.setdefault(epoch_id, False)
        if len(self.epochs) > MAX_EPOCHS:
            del self.epochs[next(iter(self.epochs))]

    def retire(self, keep_epoch_id: EpochId | None) -> None:
        """Every epoch seen so far is purged, except the one to keep."""
        self.epochs = dict.fromkeys(self.epochs, True)
        if keep_epoch_id is not None:
            self.epochs[keep_epoch_id] = False

    def is_purged(self, epoch_id: EpochId) -> bool:
        return self.epochs.get(epoch_id, False)


class Accounts:
    """All accounts of one pool.

    An allocation goes ``claim`` → ``shortfall`` is None → evict ``most_over_floor()`` as often as
    needed → ``settle``. Charges change through ``Account.shift`` only; the ranking catches up when
    it is asked, so its cost follows the accounts that changed, not all of them.
    """

    def __init__(self) -> None:
        self._by_id: dict[AccountId, Account] = {}
        self._by_number: list[Account] = []
        self._changed: dict[int, Account] = {}
        self._ranking = LazyHeap()
        self._num_spare = 0
        self._sum_floors = 0

    def __getitem__(self, account_id: AccountId) -> Account:
        """The account, made at first sight."""
        account = self._by_id.get(account_id)
        if account is None:
            account = Account(account_id, len(self._by_number), self._changed)
            self._by_id[account_id] = account
            self._by_number.append(account)
        return account

    def __iter__(self) -> Iterator[Account]:
        return iter(self._by_number)

    def adopt(self, account_id: AccountId, policy: AccountPolicy) -> bool:
        """Take the policy if its version is newer than the known one."""
        account = self[account_id]
        if account.policy is not None and policy.version <= account.policy.version:
            return False
        self._sum_floors += policy.floor_blocks - account.floor
        account.policy = policy
        account.guard = policy.floor_blocks
        account.shift()
        return True

    def fits(self, needs: Mapping[Account, int], tail: Account, num_blocks: int) -> bool:
        """Whether the blocks could be held while every other account holds its floor.

        Less would do while the others are idle, but a sequence let in on that ground could be
        stuck for ever behind blocks that nothing may evict.
        """
        if any(a.ceiling is not None and n > a.ceiling for a, n in needs.items()):
            return False
        reserved = self._sum_floors - tail.floor
        beyond = sum(max(0, n - a.floor) for a, n in needs.items() if a is not tail)
        return needs[tail] + beyond + reserved <= num_blocks

    def claim(self, needs: Mapping[Account, int], tail: Account) -> None:
        """Charge ahead what a sequence of ``tail`` needs (``tail`` is a key, be it for 0 blocks).

        However full its floor is, the tail may give up a cached block for each one that it gets;
        another account only for those that it is charged with itself.
        """
        for account, num in needs.items():
            account.guard = min(account.floor, account.num_held)
            account.num_claimed = num
            account.shift()
        num_for_others = sum(needs.values()) - needs[tail]
        tail.guard = min(tail.floor, tail.num_held - tail.num_claimed - num_for_others)

    def settle(self, needs: Mapping[Account, int]) -> None:
        """End the claim: it was fulfilled, or is given up."""
        for account in needs:
            account.guard = account.floor
            account.num_claimed = 0
            account.shift()

    def shortfall(self, needs: Mapping[Account, int], num_free: int) -> Shortfall | None:
        """What stands against the claim; None when evictions can fulfil it."""
        charged = [account for account, num in needs.items() if num]
        for account in charged:
            lacking = account.num_over_ceiling - account.num_cached
            if lacking > 0:
                return Shortfall(lacking, (account.account_id,))
        self._rank()
        # What a ceiling evicts is spare too: no more than the account gets, as one that was over
        # its ceiling before has nothing cached.
        lacking = sum(needs.values()) - num_free - self._num_spare
        if lacking <= 0:
            return None
        entitled = all(a.num_active + a.num_claimed <= a.floor for a in charged)
        return Shortfall(lacking, self._debtors(needs) if entitled else ())

    def most_over_floor(self) -> Account | None:
        """The account whose cached block goes next; None when nobody has one to spare."""
        self._rank()
        number = self._ranking.peek()
        return None if number is None else self._by_number[number]

    def _debtors(self, needs: Mapping[Account, int]) -> tuple[AccountId, ...]:
        # Running blocks count, not held ones: what a preempted sequence leaves in the cache
        # within its account's floor could not be evicted.
        over = [a for a in self if a not in needs and a.num_active > a.floor]
        ranked = sorted(over, key=lambda a: (-a.weighted(a.num_active), a.number))
        return tuple(a.account_id for a in ranked)

    def _rank(self) -> None:
        for number, account in self._changed.items():
            spare = account.num_spare
            self._num_spare += spare - account.ranked_spare
            account.ranked_spare = spare
            if spare:
                self._ranking.set(number, -account.weighted(account.num_held))
            else:
                self._ranking.discard(number)
        self._changed.clear()
