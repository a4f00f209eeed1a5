"""What is compared with the memory there is."""

import sys

import pytest

from moac import memory
from moac.memory import Need

SMALL, LARGE = Need(10, "a thing", {"things": 1}), Need(990, "others", {"others": 7, "more": [8, 9]})


def test_what_fits_is_let_through_and_one_byte_more_is_not(monkeypatch):
    monkeypatch.setattr(memory, "allowed", lambda: 1000)
    memory.check([SMALL, LARGE])
    monkeypatch.setattr(memory, "allowed", lambda: 999)
    with pytest.raises(ValueError) as error:
        memory.check([SMALL, LARGE])
    told = "this would take at least 1 kB of memory, most of it for others, and there are 999 bytes"
    assert str(error.value) == f"`others` or `more` must be smaller, got 7 and [8, 9]: {told}."


def test_numbers_of_any_size_are_told():
    with pytest.raises(ValueError, match=r"at least 8,000,\S+ EB of memory"):
        memory.check([Need(8 * 10**60, "everything", {"trials": 10**60})])


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (25_290_000_000, "25.3 GB"), (10**21, "1,000 EB")],
)
def test_bytes_in_words(size, told):
    assert memory.said(size) == told


def test_the_machine_tells_its_memory():
    assert 2**28 < memory.allowed() < sys.maxsize


@pytest.mark.parametrize(
    ("group", "limits"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "5000\n", "memory.max": "7000\n"}),
        (
            "4:memory:/a\n3:cpu:/\n",
            {"memory/a/memory.limit_in_bytes": "7000\n", "memory/memory.limit_in_bytes": "5000"},
        ),
    ],
)
def test_a_container_has_less_memory_than_its_machine(group, limits, tmp_path):
    """The limits of a group and of those around it, in both versions of control groups."""
    for name, content in limits.items():
        path = tmp_path / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "groups").write_text(group)
    assert min(memory.of_groups(tmp_path / "groups", tmp_path / "mounted")) == 5000


def test_a_system_without_control_groups_tells_of_none(tmp_path):
    assert list(memory.of_groups(tmp_path / "groups", tmp_path)) == []


def test_a_limit_of_the_process_counts(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4321, resource.RLIM_INFINITY))
    assert memory.allowed() == 4321
