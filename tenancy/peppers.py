"""The peppers of API key digests, unsealed once each and kept in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenancy.sealing import SealedFor

if TYPE_CHECKING:
    from freehold.secret import Secret
    from tenancy.directory import TenantDirectory
    from tenancy.ids import PepperId
    from tenancy.sealing import MasterKey


def pepper_place(pepper_id: PepperId) -> SealedFor:
    return SealedFor(kind="pepper", owner_id="", item_id=pepper_id)


class Peppers:
    """There are a handful: a new one at each rotation, old ones while keys still use them."""

    def __init__(self, directory: TenantDirectory, master_key: MasterKey) -> None:
        self._directory = directory
        self._master_key = master_key
        self._unsealed: dict[PepperId, Secret] = {}

    def get(self, pepper_id: PepperId) -> Secret | None:
        """None when there is no such pepper (now).

        Raises:
            UnsealFailed: it was sealed by another master key, or is damaged.
        """
        sealed = self._directory.snapshot().peppers.get(pepper_id)
        if sealed is None:
            self._unsealed.pop(pepper_id, None)
            return None
        pepper = self._unsealed.get(pepper_id)
        if pepper is None:
            pepper = self._master_key.unseal(sealed, pepper_place(pepper_id))
            self._unsealed[pepper_id] = pepper
        return pepper
