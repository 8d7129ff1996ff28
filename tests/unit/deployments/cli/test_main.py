from __future__ import annotations

import subprocess
import sys

import pytest

from deployments.cli.main import EXIT_ERROR, main


def test_what_was_foreseen_ends_in_a_line_and_not_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["freehold", "serve", "--config", "nowhere.yaml"])

    with pytest.raises(SystemExit) as caught:
        main()

    assert caught.value.code == EXIT_ERROR
    assert capsys.readouterr().err == "error: nowhere.yaml: No such file or directory\n"


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    heavy = {"ray", "torch", "transformers", "fastapi"}
    script = f"import sys, deployments.cli.main; print({heavy!r} & set(sys.modules))"
    done = subprocess.run(  # noqa: S603  # a script of ours
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout == "set()\n"
