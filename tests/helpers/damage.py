"""JSON with one entry replaced by another kind of thing, for every entry."""

import copy

VALUES = ([1], {"a": 1}, None, "x")
"""Lists, tables and texts where a number belongs, and the other way round."""
_ALIKE = 2
"""So many entries of a list are replaced; the others are like them."""


def places(data, path=()):
    """The path of every entry, from the whole to the leaves."""
    yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list):
        for place, value in enumerate(data[:_ALIKE]):
            yield from places(value, (*path, place))


def replaced(data, path, value):
    """The data with that entry replaced."""
    if not path:
        return value
    changed = copy.deepcopy(data)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def damaged(data, values=VALUES):
    """Every entry replaced by every value: its path, and the data."""
    for path in places(data):
        for value in values:
            yield path, replaced(data, path, value)
