"""The demo: the bundled model, two replicas, two tenants, keys printed once.

Decides what the demo consists of; it runs as any other service does, from a settings file that it
writes into its own state folder. Everything secret there has mode 600.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deployments.serving.state import StateFolder, read_json, write_private, write_private_json
from deployments.stores.control_plane import ControlPlane
from deployments.stores.master_key import create_master_key_file
from tenancy.authentication import Authenticated
from tenancy.ids import TenantId

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from deployments.serving.launch import Running
    from deployments.settings import Settings

TENANTS = (TenantId("acme"), TenantId("globex"))
MODEL_NAME = "smollm2-135m-instruct"
NUM_REPLICAS = 2
KV_BLOCKS = 2048
"""32,768 tokens, 0.75 GB in bf16, a replica."""

SETTINGS_FILE = "freehold.yaml"
KEYS_FILE = "demo-keys.json"


@dataclass(frozen=True, slots=True)
class DemoKeys:
    """``api_keys`` by tenant; ``reused`` says that they are those of the last start."""

    api_keys: Mapping[TenantId, str]
    reused: bool

    def __repr__(self) -> str:
        return f"DemoKeys({', '.join(self.api_keys)}: redacted)"


def write_demo_settings(state_dir: Path, model_folder: Path) -> Path:
    """The demo's settings file, new at every start (``FREEHOLD__…`` variables override it)."""
    settings = {
        "service": {"state_dir": ".", "drain_s": 0, "log_level": "warning"},
        "models": [
            {
                "name": MODEL_NAME,
                "path": str(model_folder),
                "replicas": NUM_REPLICAS,
                "kv_blocks": KV_BLOCKS,
            }
        ],
    }
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = state_dir / SETTINGS_FILE
    head = "# Written by `freehold serve --demo` at every start.\n"
    write_private(path, head + json.dumps(settings, indent=2) + "\n")
    return path


async def demo_keys(settings: Settings) -> DemoKeys:
    """Tenants and keys of the demo: those of the last start if all are still good, else new ones.

    Raises:
        FreeholdError: the state folder holds something that is not the demo's.
    """
    path = settings.service.state_dir / KEYS_FILE
    master_key = create_master_key_file(settings.master_key_file)
    plane = await ControlPlane.open(settings.database_url, master_key, follow=False)
    async with plane:
        kept = _kept_keys(path)
        if kept is not None and all(_is_good(plane, *item) for item in kept.items()):
            return DemoKeys(kept, reused=True)
        existing = {tenant.tenant_id for tenant in await plane.tenants.list()}
        for tenant_id in TENANTS:
            if tenant_id not in existing:
                await plane.tenants.create(tenant_id)
        issued = {
            tenant_id: await plane.keys.issue(tenant_id, label="demo") for tenant_id in TENANTS
        }
        keys = {tenant_id: item.key.reveal() for tenant_id, item in issued.items()}
        write_private_json(path, keys)
        return DemoKeys(keys, reused=False)


@contextlib.contextmanager
def ready_file(settings: Settings, running: Running, keys: DemoKeys) -> Generator[None]:
    """Tells scripts that the demo answers, and with which keys; gone when it stops."""
    path = StateFolder(settings.service.state_dir).demo_file
    tenants = [{"id": tenant, "api_key": keys.api_keys[tenant]} for tenant in TENANTS]
    write_private_json(
        path,
        {
            "base_url": running.base_url,
            "model": settings.models[0].name,
            "pid": os.getpid(),
            "tenants": tenants,
        },
    )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _kept_keys(path: Path) -> Mapping[TenantId, str] | None:
    kept = read_json(path) or {}
    keys = {tenant: key for tenant in TENANTS if isinstance(key := kept.get(tenant), str)}
    return keys if len(keys) == len(TENANTS) else None


def _is_good(plane: ControlPlane, tenant_id: TenantId, api_key: str) -> bool:
    result = plane.authenticator.authenticate(api_key)
    return isinstance(result, Authenticated) and result.principal.tenant_id == tenant_id


def keys_file(settings: Settings) -> Path:
    """As a person in the current folder would write it."""
    path = settings.service.state_dir / KEYS_FILE
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def snippets(settings: Settings, running: Running, keys: DemoKeys) -> Sequence[str]:
    """Ready to paste: one request by curl and one by the official client.

    A key is spelled out only when it is new; later it is read from the file that keeps it.
    """
    tenant, model = TENANTS[0], settings.models[0].name
    kept = keys_file(settings)
    if keys.reused:
        shell = f'$(sed -n \'s/.*"{tenant}": "\\(.*\\)".*/\\1/p\' {kept})'
        python = f'json.load(open("{kept}"))["{tenant}"]'
    else:
        shell, python = keys.api_keys[tenant], f'"{keys.api_keys[tenant]}"'
    return (
        f"""curl {running.base_url}/chat/completions \\
  -H "Authorization: Bearer {shell}" -H 'Content-Type: application/json' \\
  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'""",
        f"""{"import json" + chr(10) if keys.reused else ""}from openai import OpenAI

client = OpenAI(base_url="{running.base_url}", api_key={python})
for chunk in client.chat.completions.create(
    model="{model}", messages=[{{"role": "user", "content": "Hello!"}}], stream=True
):
    print(chunk.choices[0].delta.content or "", end="", flush=True)""",
    )
