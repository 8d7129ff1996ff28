"""Secrets at rest: AES-256-GCM under the master key, bound to the place they were sealed for.

A sealed secret opens only with the same master key and the same ``SealedFor``: a row copied to
another account, or a pepper passed off as an epoch's secret, is refused. The master key itself
encrypts nothing; a wrapping key and a public id are derived from it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from freehold.errors import FreeholdError
from freehold.secret import Secret
from tenancy.derivation import derive
from tenancy.framing import frame
from tenancy.ids import MasterKeyId

SECRET_BYTES = 32
_NONCE_BYTES = 12


class UnsealFailed(FreeholdError):
    """A sealed secret does not open: another master key, another place, or damaged bytes."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot unseal {self.what}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SealedFor:
    """The one place where a sealed secret is valid: goes into the authenticated data."""

    kind: str
    owner_id: str
    item_id: str


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """What a store keeps. ``box`` is nonce, ciphertext and tag."""

    master_key_id: MasterKeyId
    box: bytes = field(repr=False)


class MasterKey:
    """32 random bytes from outside the database; everything in it that is secret hangs on them."""

    __slots__ = ("_aead", "master_key_id")

    def __init__(self, key: Secret) -> None:
        """``key`` must be exactly 32 bytes.

        Raises:
            ValueError: it is not.
        """
        if len(key.reveal()) != SECRET_BYTES:
            message = f"a master key is {SECRET_BYTES} bytes long"
            raise ValueError(message)
        identity = derive(key, b"master-key-id/v1").reveal()[:8]
        self.master_key_id = MasterKeyId(identity.hex())
        self._aead = AESGCM(derive(key, b"master-key-wrap/v1").reveal())

    def seal(self, secret: Secret, place: SealedFor) -> SealedSecret:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        box = nonce + self._aead.encrypt(nonce, secret.reveal(), self._bind(place))
        return SealedSecret(self.master_key_id, box)

    def unseal(self, sealed: SealedSecret, place: SealedFor) -> Secret:
        """Open ``sealed``.

        Raises:
            UnsealFailed: another master key, another place, or damaged bytes.
        """
        what = f"{place.kind} {place.item_id}"
        if sealed.master_key_id != self.master_key_id:
            reason = (
                f"it was sealed by master key {sealed.master_key_id}, "
                f"this process has {self.master_key_id}"
            )
            raise UnsealFailed(what, reason)
        nonce, ciphertext = sealed.box[:_NONCE_BYTES], sealed.box[_NONCE_BYTES:]
        try:
            return Secret(self._aead.decrypt(nonce, ciphertext, self._bind(place)))
        except (InvalidTag, ValueError):  # ValueError: cut too short for a nonce and a tag
            raise UnsealFailed(what, "its bytes were changed or moved") from None

    def _bind(self, place: SealedFor) -> bytes:
        parts = (place.kind, place.owner_id, place.item_id, self.master_key_id)
        return frame(b"sealed/v1", *(part.encode() for part in parts))
