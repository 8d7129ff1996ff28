"""Every setting of a service: ``schema`` says what exists, ``file`` reads it."""

from deployments.settings.file import InvalidSettings, load_settings
from deployments.settings.schema import (
    GatewaySettings,
    ModelSettings,
    RaySettings,
    ServiceSettings,
    Settings,
    TenancySettings,
)

__all__ = [
    "GatewaySettings",
    "InvalidSettings",
    "ModelSettings",
    "RaySettings",
    "ServiceSettings",
    "Settings",
    "TenancySettings",
    "load_settings",
]
