"""Every setting of a Freehold service, read once and passed on by constructor.

Decides names, types, ranges and defaults (freehold.example.yaml says the same with comments);
reading the file and naming mistakes is ``file``'s business. No secret has a default, and
relative paths start at the folder of the file that names them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

Port = Annotated[int, Field(ge=1, le=65535)]
PositiveInt = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

MIB = 1024 * 1024
ENV_PREFIX = "FREEHOLD__"


class Section(BaseModel):
    """One mapping of the file: immutable, and unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ServiceSettings(Section):
    """Where the service listens, keeps its state, and how it ends."""

    host: str = "127.0.0.1"
    port: Port = 8000
    state_dir: Path = Path(".freehold")
    drain_s: Seconds = 30.0
    """How long a replica that leaves may finish its streams (Ctrl-C waits for it too)."""
    max_stream_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 600.0
    """A request's budget in an engine; a longer one is stopped."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class ModelSettings(Section):
    """One model, where its weights are, and how many engines of which size serve it."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][\w.:/-]*$")]
    path: Path | None = None
    repo: str | None = None
    revision: str | None = None
    gguf: Path | None = None
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    attention_backend: Literal["auto", "cpu", "torch", "flash", "flashinfer"] = "auto"
    replicas: PositiveInt = 1
    threads: PositiveInt | None = None
    """Of one engine; by default the machine's cores divided by the number of engines."""
    kv_blocks: PositiveInt | None = None
    kv_bytes: PositiveInt | None = None
    block_size: Literal[16, 32, 64] = 16
    max_model_len: PositiveInt | None = None
    max_num_seqs: PositiveInt = 64
    max_step_tokens: PositiveInt = 1024
    max_step_ms: Annotated[float, Field(gt=0)] = 50.0
    max_waiting: PositiveInt = 256

    @model_validator(mode="after")
    def _one_source_one_size(self) -> Self:
        if sum(source is not None for source in (self.path, self.repo, self.gguf)) != 1:
            message = "give exactly one of path, repo and gguf"
            raise ValueError(message)
        if self.revision is not None and self.repo is None:
            message = "revision needs repo"
            raise ValueError(message)
        if self.kv_blocks is not None and self.kv_bytes is not None:
            message = "give kv_blocks or kv_bytes, not both"
            raise ValueError(message)
        if self.max_step_tokens < self.max_num_seqs:
            message = "max_step_tokens must be at least max_num_seqs (one token a step for each)"
            raise ValueError(message)
        return self


class GatewaySettings(Section):
    """What the gateway accepts."""

    max_body_bytes: PositiveInt = 4 * MIB
    max_prompt_tokens: PositiveInt | None = None
    """By default what the model can hold."""
    max_choices: PositiveInt = 16
    """Upper bound of ``n``."""
    max_prompts: PositiveInt = 64
    """Prompts in one completions request."""
    default_max_tokens: PositiveInt | None = None
    """Of a chat answer when the client names none; by default what is left of the context."""


class TenancySettings(Section):
    """The control plane: by default SQLite and a master key file in ``service.state_dir``."""

    database_url: SecretStr | None = None
    master_key_file: Path | None = None


class RaySettings(Section):
    """The cluster below, started and ended with the service."""

    haproxy: bool = True
    throughput_optimized: bool = True
    num_cpus: PositiveInt | None = None
    """Logical; by default what the deployments ask for."""
    node_ip: str = "127.0.0.2"
    """Ray rewrites 127.0.0.1 to the machine's own address; this one stays on loopback."""
    object_store_bytes: Annotated[int, Field(ge=80 * MIB)] = 128 * MIB


class Settings(BaseSettings):
    """The whole file; ``FREEHOLD__SERVICE__PORT=8001`` in the environment overrides it."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=ENV_PREFIX, env_nested_delimiter="__"
    )

    service: ServiceSettings = ServiceSettings()
    models: Annotated[tuple[ModelSettings, ...], Field(min_length=1)]
    gateway: GatewaySettings = GatewaySettings()
    tenancy: TenancySettings = TenancySettings()
    ray: RaySettings = RaySettings()

    @field_validator("models")
    @classmethod
    def _names_differ(cls, models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            message = f"two models have the same name: {sorted(names)}"
            raise ValueError(message)
        return models

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, whose contents come as arguments."""
        return env_settings, init_settings

    @property
    def num_engines(self) -> int:
        return sum(model.replicas for model in self.models)

    @property
    def database_url(self) -> str:
        """Of the control plane. May hold a password: for the driver's eyes only."""
        if self.tenancy.database_url is not None:
            return self.tenancy.database_url.get_secret_value()
        return f"sqlite+aiosqlite:///{self.service.state_dir / 'control.db'}"

    @property
    def master_key_file(self) -> Path:
        return self.tenancy.master_key_file or self.service.state_dir / "master.key"

    def anchored(self, base: Path) -> Settings:
        """The same with every relative path starting at ``base``."""

        def at(path: Path | None) -> Path | None:
            return None if path is None else base / path.expanduser()

        service = self.service.model_copy(
            update={"state_dir": base / self.service.state_dir.expanduser()}
        )
        models = tuple(
            model.model_copy(update={"path": at(model.path), "gguf": at(model.gguf)})
            for model in self.models
        )
        tenancy = self.tenancy.model_copy(
            update={"master_key_file": at(self.tenancy.master_key_file)}
        )
        return self.model_copy(update={"service": service, "models": models, "tenancy": tenancy})
