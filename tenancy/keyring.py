"""Cache salts: who may find a block. Derived from the current secret of an account's epoch.

    salt(tenant)   = HKDF-SHA256(secret, "cache-salt/v1")
    salt(end user) = HKDF-SHA256(secret, frame("end-user/v1", cache_salt))

An end user is a sub-namespace inside its tenant and can never replace the tenant's salt. Salts
live in the gateway's memory only; nothing here hands out a secret of an epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freehold.errors import FreeholdError, InvalidRequest
from freehold.kv.keys import Domain
from freehold.protocol import Owner
from tenancy.derivation import derive
from tenancy.framing import frame
from tenancy.sealing import SealedFor

if TYPE_CHECKING:
    from freehold.protocol import AccountId, EpochId
    from freehold.secret import Secret
    from tenancy.directory import DirectorySnapshot, TenantDirectory
    from tenancy.sealing import MasterKey

MAX_CACHE_SALT_CHARS = 128
_PARAM = "cache_salt"
_FORBIDDEN = frozenset("@/\\\0")


class UnknownAccount(FreeholdError):
    """No epoch is known for an account: it was removed after its caller was authenticated."""

    def __init__(self, account_id: AccountId) -> None:
        super().__init__(account_id)
        self.account_id = account_id

    def __str__(self) -> str:
        return f"no cache epoch is known for account {self.account_id}"


def validate_cache_salt(cache_salt: str) -> str:
    """Returns it unchanged; it does not appear in the error.

    Raises:
        InvalidRequest: empty, too long, or with a character that other systems use as separator.
    """
    if not cache_salt:
        raise InvalidRequest(_PARAM, "must not be empty")
    if len(cache_salt) > MAX_CACHE_SALT_CHARS:
        raise InvalidRequest(_PARAM, f"must have at most {MAX_CACHE_SALT_CHARS} characters")
    if not _FORBIDDEN.isdisjoint(cache_salt):
        raise InvalidRequest(_PARAM, "must not contain '@', '/', '\\' or NUL")
    if any("\ud800" <= char <= "\udfff" for char in cache_salt):
        raise InvalidRequest(_PARAM, "must be valid Unicode")
    return cache_salt


def epoch_place(account_id: AccountId, epoch_id: EpochId) -> SealedFor:
    return SealedFor(kind="epoch", owner_id=account_id, item_id=epoch_id)


class Keyring:
    """Unseals lazily and remembers one secret an account; forgets those of ended epochs."""

    def __init__(self, directory: TenantDirectory, master_key: MasterKey) -> None:
        self._directory = directory
        self._master_key = master_key
        self._version: int | None = None
        self._unsealed: dict[AccountId, tuple[Owner, Secret, Domain]] = {}

    def tenant_domain(self, account_id: AccountId) -> Domain:
        """Of everything a tenant sends without ``cache_salt``.

        Raises:
            UnknownAccount, UnsealFailed
        """
        return self._current(account_id)[2]

    def end_user_domain(self, account_id: AccountId, cache_salt: str) -> Domain:
        """Inside the tenant: charged to the same account, in the same epoch.

        Raises:
            InvalidRequest: ``cache_salt`` is malformed.
            UnknownAccount, UnsealFailed
        """
        info = frame(b"end-user/v1", validate_cache_salt(cache_salt).encode())
        owner, secret, _ = self._current(account_id)
        return Domain(owner, derive(secret, info))

    def _current(self, account_id: AccountId) -> tuple[Owner, Secret, Domain]:
        snapshot = self._directory.snapshot()
        if snapshot.version != self._version:
            self._forget_ended(snapshot)
        known = self._unsealed.get(account_id)
        if known is None:
            known = self._unsealed[account_id] = self._unseal(snapshot, account_id)
        return known

    def _forget_ended(self, snapshot: DirectorySnapshot) -> None:
        """A purged epoch's secret does not stay in memory."""
        self._unsealed = {
            account_id: known
            for account_id, known in self._unsealed.items()
            if (epoch := snapshot.epochs.get(account_id)) and epoch.epoch_id == known[0].epoch_id
        }
        self._version = snapshot.version

    def _unseal(
        self, snapshot: DirectorySnapshot, account_id: AccountId
    ) -> tuple[Owner, Secret, Domain]:
        epoch = snapshot.epochs.get(account_id)
        if epoch is None:
            raise UnknownAccount(account_id)
        secret = self._master_key.unseal(epoch.sealed, epoch_place(account_id, epoch.epoch_id))
        owner = Owner(account_id, epoch.epoch_id)
        return owner, secret, Domain(owner, derive(secret, b"cache-salt/v1"))
