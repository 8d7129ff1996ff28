"""Which service is measured, as whom: the running demo, or one that the caller names.

Reads ``.freehold/demo.json`` (the demo's signal that it is ready); an API key comes from there or
from the environment, never from the command line, where every user of the machine could read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from freehold.errors import FreeholdError
from freehold.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class NoTarget(FreeholdError):
    """There is nothing to measure; ``reason`` says what was looked for and what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Target:
    """``base_url`` ends in ``/v1``; ``model`` None means the first one that the service lists."""

    base_url: str
    api_key: Secret
    model: str | None = None


class _DemoTenant(BaseModel):
    model_config = ConfigDict(extra="ignore")
    id: str
    api_key: SecretStr


class _Demo(BaseModel):
    model_config = ConfigDict(extra="ignore")
    base_url: str
    model: str
    tenants: list[_DemoTenant] = Field(min_length=1)


def from_demo(path: Path) -> Target:
    """The demo that runs now, as its first tenant.

    Raises:
        NoTarget: the file is not there, or is not what the demo writes.
    """
    try:
        demo = _Demo.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        reason = f"no demo is running ({path} is not there): start `make serve`, or give --base-url"
        raise NoTarget(reason) from None
    except ValidationError:  # its text would quote the keys
        reason = f"{path} is not a demo's file: restart `make serve`, or give --base-url"
        raise NoTarget(reason) from None
    key = demo.tenants[0].api_key.get_secret_value()
    return Target(_v1(demo.base_url), Secret(key.encode()), demo.model)


def from_options(
    base_url: str, api_key_env: str, model: str | None, environ: Mapping[str, str]
) -> Target:
    """The service that the caller names, with the key in the variable ``api_key_env``.

    Raises:
        NoTarget: the variable is not set.
    """
    key = environ.get(api_key_env)
    if not key:
        reason = f"--base-url needs an API key in the environment variable {api_key_env}"
        raise NoTarget(reason)
    return Target(_v1(base_url), Secret(key.encode()), model)


def _v1(base_url: str) -> str:
    bare = base_url.rstrip("/")
    return bare if bare.endswith("/v1") else f"{bare}/v1"
