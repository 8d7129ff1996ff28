"""Blocks of keys and values: their names, their pool, their accounts. No torch here."""
