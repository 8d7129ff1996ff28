from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from deployments.bench.target import NoTarget, from_demo, from_options

if TYPE_CHECKING:
    from pathlib import Path

KEY = "fh_secret"


def test_the_demo_is_measured_as_its_first_tenant(tmp_path: Path) -> None:
    tenants = [{"id": "acme", "api_key": KEY}, {"id": "globex", "api_key": "fh_other"}]
    demo = {"base_url": "http://127.0.0.1:8000/v1", "model": "m", "pid": 1, "tenants": tenants}
    path = tmp_path / "demo.json"
    path.write_text(json.dumps(demo))

    target = from_demo(path)

    assert (target.base_url, target.model) == ("http://127.0.0.1:8000/v1", "m")
    assert target.api_key.reveal() == KEY.encode()
    assert KEY not in repr(target)


def test_without_a_demo_the_caller_is_told_what_to_start(tmp_path: Path) -> None:
    with pytest.raises(NoTarget, match="make serve"):
        from_demo(tmp_path / "demo.json")


def test_a_strange_file_is_refused_without_quoting_it(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    path.write_text(json.dumps({"base_url": KEY, "tenants": [{"id": 1, "api_key": KEY}]}))

    with pytest.raises(NoTarget, match="not a demo's file") as caught:
        from_demo(path)

    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "base_url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"]
)
def test_a_base_url_may_come_with_or_without_its_version(base_url: str) -> None:
    target = from_options(base_url, "MY_KEY", None, {"MY_KEY": KEY})

    assert target.base_url == "http://h:1/v1"
    assert target.model is None


def test_a_named_service_needs_a_key_in_the_environment() -> None:
    with pytest.raises(NoTarget, match="MY_KEY"):
        from_options("http://h:1", "MY_KEY", None, {"OTHER": KEY})
