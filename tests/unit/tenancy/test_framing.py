from itertools import combinations

from tenancy.framing import frame


def test_fields_that_join_alike_frame_differently() -> None:
    lists = [(b"org_1", b"2345"), (b"org_12345", b""), (b"", b"org_12345"), (b"org_12345",), ()]
    for a, b in combinations(lists, 2):
        assert frame(*a) != frame(*b)


def test_lengths_are_u32_little_endian() -> None:
    assert frame(b"ab", b"") == b"\x02\0\0\0ab\0\0\0\0"
