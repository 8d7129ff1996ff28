"""Who a caller is and what is theirs: tenants, principals, API keys, keyring. Pure, with ports."""
