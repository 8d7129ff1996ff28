"""The core of Freehold: what a block, a sequence and an engine is.

Pure Python and torch; knows no Ray, no HTTP and no tenant.
"""

__version__ = "0.1.0"
