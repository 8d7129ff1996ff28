"""The engine's own C++: compiled once on this machine, called through ctypes, never required."""
