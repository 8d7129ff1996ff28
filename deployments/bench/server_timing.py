"""The ``Server-Timing`` response header, in which the gateway says what each stage took."""

from __future__ import annotations


def parse_server_timing(header: str) -> dict[str, float]:
    """``name;dur=1.5, other;dur=0.2`` → seconds by name, in the header's order.

    Metrics without a duration, or with one that is no number, are left out, as browsers do.
    """
    stages_s: dict[str, float] = {}
    for metric in header.split(","):
        name, *parameters = (part.strip() for part in metric.split(";"))
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "dur" and name:
                try:
                    stages_s[name] = float(value.strip().strip('"')) / 1000
                except ValueError:
                    continue
    return stages_s
