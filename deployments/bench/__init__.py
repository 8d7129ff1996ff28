"""Benchmarks that a user can run against a service: they measure and report, and assert no time."""
