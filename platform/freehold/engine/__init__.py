"""The engine: sequences are scheduled, executed, sampled and advanced, one step at a time."""
