"""Pages: of a run, an exploration, a sweep, an evaluation, an experiment."""
