"""KuaiRand: its files as a log, its download, and generated rows whose truth is known."""

from moac.kuairand.schema import find as find

__all__ = ["find"]
