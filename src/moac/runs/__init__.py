"""Runs on disk, and where tasks run."""

CHECKPOINT_SECONDS = 2.0
"""A run that is killed loses at most about so much of its work."""
