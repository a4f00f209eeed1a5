"""Sweeps: many runs over settings, methods, environments and seeds, on any executor."""
