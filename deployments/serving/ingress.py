"""The gateway as a Serve replica: builds everything that the FastAPI app is given.

Decides what is constructed from which setting and in which order it is taken down. Knows nothing
of requests: that is ``deployments.gateway``'s business.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from deployments.gateway.app import create_app
from deployments.gateway.services import GatewayLimits, GatewayServices
from deployments.gateway.tokenizer import PromptTokenizer
from deployments.serving.fleet import ServeFleet
from deployments.serving.logs import configure_logs
from deployments.serving.operator_api import operator_router
from deployments.serving.ray_types import ServeEngineClient
from deployments.serving.sources import model_source
from deployments.serving.state import StateFolder, read_token
from deployments.serving.status import ModelStatus, model_status
from deployments.stores.control_plane import ControlPlane
from deployments.stores.master_key import load_master_key
from tenancy.admission import OpenAdmission

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI

    from deployments.serving.ray_types import RayHandle
    from deployments.settings import GatewaySettings, ModelSettings, Settings


class Ingress:
    """One gateway; Serve gives it a handle for each engine deployment, by model name."""

    def __init__(self, settings: Settings, engines: Mapping[str, RayHandle]) -> None:
        configure_logs(settings.service.log_level)
        self._settings = settings
        self._engines = engines
        self._fleet: ServeFleet | None = None
        self._plane: ControlPlane | None = None

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """Called by Serve, once, in the loop that will run the application."""
        settings = self._settings
        tokenizers = {
            model.name: await asyncio.to_thread(_tokenizer, model) for model in settings.models
        }
        master_key = load_master_key(settings.master_key_file)
        plane = self._plane = await ControlPlane.open(settings.database_url, master_key)
        clients = {name: ServeEngineClient(handle) for name, handle in self._engines.items()}
        fleet = self._fleet = ServeFleet(clients)
        fleet.start()
        app = create_app(
            GatewayServices(
                authenticator=plane.authenticator,
                keyring=plane.keyring,
                admission=OpenAdmission(),
                fleet=fleet,
                tokenizers=tokenizers,
                limits=_limits(settings.gateway, settings.service.max_stream_s),
                adopt_request_id=True,
            )
        )
        token = read_token(StateFolder(settings.service.state_dir).operator_token)
        app.include_router(operator_router(token, partial(self._status, fleet, plane)))
        return app

    def _status(self, fleet: ServeFleet, plane: ControlPlane) -> Sequence[ModelStatus]:
        reports = fleet.reports()
        tenants = plane.directory.snapshot().tenants.values()
        return [
            model_status(model.name, model.replicas, reports[model.name], tenants)
            for model in self._settings.models
        ]

    async def __del__(self) -> None:
        if self._fleet is not None:
            await self._fleet.close()
        if self._plane is not None:
            await self._plane.close()


def _tokenizer(model: ModelSettings) -> PromptTokenizer:
    return PromptTokenizer.from_folder(model_source(model).folder())


def _limits(gateway: GatewaySettings, max_stream_s: float) -> GatewayLimits:
    return GatewayLimits(
        max_body_bytes=gateway.max_body_bytes,
        max_prompt_tokens=gateway.max_prompt_tokens,
        max_choices=gateway.max_choices,
        max_prompts=gateway.max_prompts,
        default_max_tokens=gateway.default_max_tokens,
        max_stream_s=max_stream_s,
    )
