"""KuaiRand: its schema, download and generator."""
