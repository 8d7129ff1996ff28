"""``freehold``: what an operator types. A module a command; each imports what it needs when it runs."""
