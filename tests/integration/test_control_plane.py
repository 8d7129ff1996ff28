"""The control plane over several processes, and a search for secrets in everything it leaves."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import secrets
import sys
from typing import TYPE_CHECKING, Any

import pytest

from deployments.stores.control_plane import ControlPlane
from deployments.stores.master_key import MASTER_KEY_VARIABLE
from freehold.errors import FreeholdError
from freehold.kv.keys import Domain, ModelIdentity, Span, block_keys
from freehold.secret import Secret
from tenancy.api_key import parse_api_key
from tenancy.authentication import Authenticated
from tenancy.keyring import epoch_place
from tenancy.peppers import Peppers
from tenancy.sealing import MasterKey
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

RAW_MASTER_KEY = secrets.token_bytes(32)
COMMAND = "from deployments.cli.main import main; main()"
TOKENS = tuple(range(100))
MODEL = ModelIdentity("fingerprint")


@pytest.fixture
def master_key() -> MasterKey:
    return MasterKey(Secret(RAW_MASTER_KEY))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "freehold.yaml"
    file.write_text("models:\n  - {name: m, path: m}\n")
    return file


@pytest.fixture
def url(config: Path) -> str:
    return f"sqlite:///{config.parent / '.freehold' / 'control.db'}"


async def freehold(config: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command in a process of its own."""
    variable = {MASTER_KEY_VARIABLE: base64.b64encode(RAW_MASTER_KEY).decode()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMAND, *arguments, "--config", str(config),
        env={**os.environ, **variable},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def ok(config: Path, *arguments: str) -> Any:
    code, out, err = await freehold(config, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


async def test_processes_that_start_at_once_share_one_new_database(
    config: Path, url: str, master_key: MasterKey
) -> None:
    names = ["a", "b", "c"]
    results = await asyncio.gather(*(freehold(config, "tenant", "create", n) for n in names))
    assert [(code, err) for code, _, err in results] == [(0, "")] * len(names)
    async with await ControlPlane.open(url, master_key, follow=False) as plane:
        assert [tenant.tenant_id for tenant in await plane.tenants.list()] == names
        assert len(plane.directory.snapshot().peppers) == 1


async def test_a_running_gateway_follows_the_command_line(
    config: Path, url: str, master_key: MasterKey
) -> None:
    async with await ControlPlane.open(url, master_key) as gateway:
        await gateway.tenants.create("acme")
        issued = await ok(config, "key", "issue", "acme")

        def is_good() -> bool:
            result = gateway.authenticator.authenticate(issued["api_key"])
            return isinstance(result, Authenticated)

        await eventually(is_good)
        await ok(config, "key", "revoke", issued["key_id"])
        await eventually(lambda: not is_good())


async def test_a_refusal_is_one_line_without_the_key(
    config: Path, url: str, master_key: MasterKey
) -> None:
    async with await ControlPlane.open(url, master_key, follow=False) as plane:
        await plane.tenants.create("acme")
        damaged = (await plane.keys.issue("acme")).key.reveal()[:-1]
    code, out, err = await freehold(config, "key", "revoke", damaged)
    assert code == 2
    assert out == ""
    assert err == "error: key_id: expected the 12 characters behind 'fh_'\n"


async def test_from_key_to_cache_the_tenants_share_nothing(url: str, master_key: MasterKey) -> None:
    """One identity chain: the same prompt hits for its tenant and misses for any other."""
    async with await ControlPlane.open(url, master_key, follow=False) as plane:
        raw: list[str] = []
        for name in ("org-1", "org-12"):
            await plane.tenants.create(name)
            raw.append((await plane.keys.issue(name)).key.reveal())
        await plane.directory.refresh()

        def domains(key: str, cache_salt: str | None = None) -> tuple[Domain, tuple[Span, ...]]:
            result = plane.authenticator.authenticate(key)
            assert isinstance(result, Authenticated)
            account_id = result.principal.account_id
            tenant = plane.keyring.tenant_domain(account_id)
            if cache_salt is None:
                return tenant, ()
            return plane.keyring.end_user_domain(account_id, cache_salt), (Span(0, tenant),)

        def named(key: str, cache_salt: str | None = None) -> set[bytes]:
            tail, spans = domains(key, cache_salt)
            chain = block_keys(TOKENS, block_size=16, model=MODEL, tail=tail, spans=spans)
            assert len(chain.block_keys) == 6
            return set(chain.block_keys)

        a, b = raw
        assert named(a) == named(a)
        assert named(a, "u1") == named(a, "u1")
        groups = [named(a), named(b), named(a, "u1"), named(b, "u1"), named(a, "2-u1")]
        assert len(set[bytes]().union(*groups)) == sum(len(group) for group in groups)

        before = named(a)
        await plane.epochs.purge("org-1")
        await plane.directory.refresh()
        assert named(a).isdisjoint(before)
        assert named(b) == groups[1]


async def test_no_secret_is_left_in_files_logs_errors_or_reprs(
    config: Path, url: str, master_key: MasterKey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sqlalchemy.engine").setLevel(logging.DEBUG)
    try:
        hidden, ended_box, shown = await work_with_secrets(url, master_key)
    finally:
        logging.getLogger("sqlalchemy.engine").setLevel(logging.NOTSET)
    folder = config.parent / ".freehold"
    files = b"".join(file.read_bytes() for file in folder.iterdir())
    logs = caplog.text
    assert "INSERT INTO api_keys" in logs  # else nothing was looked at
    assert b"CREATE TABLE api_keys" in files
    for name, secret in hidden.items():
        for form in forms(secret):
            assert form not in files, f"{name} in the database"
            assert form.decode("latin-1") not in logs, f"{name} in the log"
            assert form.decode("latin-1") not in shown, f"{name} in a repr or an error"
    assert ended_box not in files  # a destroyed secret is overwritten, sealed as it is


async def work_with_secrets(url: str, master_key: MasterKey) -> tuple[dict[str, bytes], bytes, str]:
    """Use everything once: the secrets, an ended epoch's box, the text of all that was returned."""
    shown: list[str] = []
    async with await ControlPlane.open(url, master_key, follow=False) as plane:
        tenant = await plane.tenants.create("acme")
        issued = await plane.keys.issue("acme", label="ci")
        await plane.directory.refresh()
        raw = issued.key.reveal()
        snapshot = plane.directory.snapshot()
        epoch = snapshot.epochs[tenant.account_id]
        place = epoch_place(tenant.account_id, epoch.epoch_id)
        pepper = Peppers(plane.directory, master_key).get(issued.record.pepper_id)
        assert pepper is not None
        hidden = {
            "master key": RAW_MASTER_KEY,
            "pepper": pepper.reveal(),
            "epoch secret": master_key.unseal(epoch.sealed, place).reveal(),
            "tenant salt": plane.keyring.tenant_domain(tenant.account_id).salt.reveal(),
            "user salt": plane.keyring.end_user_domain(tenant.account_id, "u").salt.reveal(),
            "API key": raw.encode(),
            "API key's secret": issued.key.secret.reveal(),
        }
        values = (issued, snapshot, pepper, plane, plane.keyring, plane.authenticator)
        shown += [repr(value) for value in values]
        shown.append(repr(plane.keyring.end_user_domain(tenant.account_id, "u")))
        shown.append(repr(plane.authenticator.authenticate(raw)))
        for attempt in (
            plane.keys.revoke(raw[:-1]),
            plane.keys.issue(raw),
            plane.tenants.create(raw),
            plane.tenants.create("acme"),
        ):
            with pytest.raises(FreeholdError) as caught:
                await attempt
            shown.append(f"{caught.value} {caught.value!r} {caught.value.__cause__!r}")
        await plane.epochs.purge("acme")
        await plane.keys.revoke(raw)
        assert parse_api_key(raw) == issued.key
    return hidden, epoch.sealed.box, "\n".join(shown)


def forms(secret: bytes) -> list[bytes]:
    """How bytes may show up in text."""
    return [
        secret,
        secret.hex().encode(),
        base64.b64encode(secret).rstrip(b"="),
        repr(secret)[2:-1].encode(),
    ]
