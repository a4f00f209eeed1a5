"""Drawings of the studies."""
