"""Where a request goes: prefix index, replica view and routing policy. Pure."""
