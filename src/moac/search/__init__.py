"""Many runs, one answer: explorations, sweeps, candidates for a log."""
