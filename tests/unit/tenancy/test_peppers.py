from dataclasses import replace

import pytest

from tenancy.ids import new_pepper_id
from tenancy.peppers import Peppers
from tenancy.sealing import UnsealFailed
from tests.support.tenants import MemoryControlPlane


def test_each_pepper_opens_to_a_secret_of_its_own() -> None:
    plane = MemoryControlPlane()
    first = plane.pepper_id
    second = plane.rotate_pepper()
    peppers = Peppers(plane, plane.master_key)
    assert peppers.get(first) == peppers.get(first)
    assert peppers.get(first) != peppers.get(second)


def test_a_pepper_that_left_the_directory_is_forgotten() -> None:
    plane = MemoryControlPlane()
    peppers = Peppers(plane, plane.master_key)
    assert peppers.get(plane.pepper_id) is not None
    plane.replace_snapshot(replace(plane.snapshot(), peppers={}))
    assert peppers.get(plane.pepper_id) is None
    assert peppers.get(new_pepper_id()) is None


def test_a_pepper_under_another_id_does_not_open() -> None:
    plane = MemoryControlPlane()
    other = new_pepper_id()
    moved = {other: plane.snapshot().peppers[plane.pepper_id]}
    plane.replace_snapshot(replace(plane.snapshot(), peppers=moved))
    with pytest.raises(UnsealFailed):
        Peppers(plane, plane.master_key).get(other)
