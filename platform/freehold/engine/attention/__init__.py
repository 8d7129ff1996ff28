"""Paged attention: one protocol, the backends behind it, and the C++ that the CPU one compiles."""
