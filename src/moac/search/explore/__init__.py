"""Many policies for many preferences, and those of them that no other dominates."""
