"""Who is served first and who gives way: the scheduler's one override point.

A policy orders and picks; it never touches blocks. Only first come, first served exists yet; a
fair one over accounts takes its place without a change to the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as Seq

    from freehold.engine.sequence import Sequence
    from freehold.protocol import AccountId


class SchedulingPolicy(Protocol):
    """Both lists come in order of arrival; neither is empty where it is asked."""

    def admission_order(self, waiting: Seq[Sequence]) -> Iterable[Sequence]:
        """A permutation of ``waiting``: the first one that cannot be placed ends admission."""
        ...

    def victim(
        self, running: Seq[Sequence], claimant: Sequence, debtors: Seq[AccountId]
    ) -> Sequence:
        """Who of ``running`` gives its blocks up for ``claimant`` (which may be itself).

        ``debtors`` are the accounts that should give way, the first one first: the claimant's own
        when it has reached its ceiling; nobody in particular when empty.
        """
        ...


class FirstComeFirstServed:
    """Oldest first; the youngest (of the debtor) gives way, so the oldest always goes on."""

    def admission_order(self, waiting: Seq[Sequence]) -> Iterable[Sequence]:
        return waiting

    def victim(
        self, running: Seq[Sequence], claimant: Sequence, debtors: Seq[AccountId]
    ) -> Sequence:
        for account_id in debtors:
            for sequence in reversed(running):
                if sequence.group.request.tail.account_id == account_id:
                    return sequence
        return running[-1]
