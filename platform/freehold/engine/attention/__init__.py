"""Paged attention: one protocol, the backends behind it, and the choice between them."""
