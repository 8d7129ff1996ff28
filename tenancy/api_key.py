"""API keys: ``fh_<key id>_<secret><checksum>``, and the digest that is stored instead of one.

The key id is public. The checksum is no protection, it only tells a typo or a cut from an unknown
key without asking anybody. Nothing here says whether a key is valid.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from dataclasses import dataclass

from freehold.errors import InvalidRequest
from freehold.secret import Secret
from tenancy.framing import frame
from tenancy.ids import KeyId

_PARAM = "key_id"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY_ID_CHARS = 12
_SECRET_CHARS = 43  # log2(62) * 43 = 256.03 bits
_CHECKSUM_CHARS = 6  # 62**6 > 2**32
_KEY = re.compile(
    rf"(fh_([0-9A-Za-z]{{{_KEY_ID_CHARS}}})_([0-9A-Za-z]{{{_SECRET_CHARS}}}))"
    rf"([0-9A-Za-z]{{{_CHECKSUM_CHARS}}})"
)
_KEY_ID = re.compile(rf"[0-9A-Za-z]{{{_KEY_ID_CHARS}}}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as its holder knows it."""

    key_id: KeyId
    secret: Secret

    def reveal(self) -> str:
        """The text that a client sends. Shown once, when the key is issued."""
        body = f"fh_{self.key_id}_{self.secret.reveal().decode()}"
        return body + _checksum(body)


def new_api_key() -> ApiKey:
    return ApiKey(KeyId(_random(_KEY_ID_CHARS)), Secret(_random(_SECRET_CHARS).encode()))


def parse_api_key(text: str) -> ApiKey | None:
    """None when it is not a whole, well-typed key. Bounded work for any input."""
    match = _KEY.fullmatch(text)
    if match is None:
        return None
    body, key_id, secret, checksum = match.groups()
    if not hmac.compare_digest(checksum, _checksum(body)):
        return None
    return ApiKey(KeyId(key_id), Secret(secret.encode()))


def parse_key_id(text: str) -> KeyId:
    """A key id, or the id inside a whole key (whoever revokes a leaked key may hold only that).

    The text does not appear in the error: it may be a damaged key.

    Raises:
        InvalidRequest: neither.
    """
    if _KEY_ID.fullmatch(text) is not None:
        return KeyId(text)
    key = parse_api_key(text)
    if key is None:
        raise InvalidRequest(_PARAM, f"expected the {_KEY_ID_CHARS} characters behind 'fh_'")
    return key.key_id


def digest(key: ApiKey, pepper: Secret) -> bytes:
    """HMAC-SHA256 of id and secret: a digest moved to another key's row proves nothing."""
    message = frame(b"api-key/v1", key.key_id.encode(), key.secret.reveal())
    return hmac.new(pepper.reveal(), message, hashlib.sha256).digest()


def _random(num_chars: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(num_chars))


def _checksum(body: str) -> str:
    """CRC-32 in base 62: finds every error within four neighbouring characters, for certain."""
    value = zlib.crc32(body.encode())
    digits: list[str] = []
    for _ in range(_CHECKSUM_CHARS):
        value, digit = divmod(value, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
