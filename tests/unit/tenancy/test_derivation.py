import hashlib
import hmac

from freehold.secret import Secret
from tenancy.derivation import derive


def test_agrees_with_rfc_5869_test_case_3() -> None:
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derive(Secret(b"\x0b" * 22), b"").reveal().hex() == expected


def test_agrees_with_hkdf_written_out() -> None:
    secret, info = b"s" * 32, b"cache-salt/v1"
    pseudorandom = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    expected = hmac.new(pseudorandom, info + b"\x01", hashlib.sha256).digest()
    assert derive(Secret(secret), info).reveal() == expected
