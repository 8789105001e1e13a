import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumok.data.batches import permute


def shuffle(size, key):
    """Where all of `size` things go."""
    places = np.arange(size)
    return permute(places, np.full(size, size), np.full(size, key, np.uint64))


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_a_shuffle_gives_everything_a_place_of_its_own(size, key):
    assert sorted(shuffle(size, key).tolist()) == list(range(size))


@given(size=st.integers(2, 10**15), key=st.integers(0, 2**64 - 1), data=st.data())
def test_each_place_is_a_function_of_itself_alone(size, key, data):
    some = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=2, max_size=20))))
    together = permute(some, np.full(len(some), size), np.full(len(some), key, np.uint64))
    alone = [permute(some[at : at + 1], np.array([size]), np.array([key], np.uint64)).item() for at in range(len(some))]
    assert together.tolist() == alone
    assert len(set(alone)) == len(some)
    assert 0 <= min(alone) <= max(alone) < size


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 9, 30])
def test_any_two_things_go_to_any_two_places_equally_often(size):
    """Chi-square of 24 000 shuffles against uniform ones; the keys are fixed, so the number is too."""
    keys = np.arange(24_000, dtype=np.uint64)
    one, other = (permute(np.full(len(keys), thing), np.full(len(keys), size), keys) for thing in (0, size - 1))
    seen = np.zeros((size, size))
    np.add.at(seen, (one, other), 1)
    apart = seen[~np.eye(size, dtype=bool)]
    assert apart.sum() == len(keys)
    surprise = ((apart - apart.mean()) ** 2 / apart.mean()).sum()
    assert surprise < len(apart) - 1 + 5 * np.sqrt(2 * (len(apart) - 1))


def test_neighbours_do_not_stay_neighbours():
    """In 10 000 permute things about two pairs of neighbours are neighbours again, in either order."""
    still = [int((np.abs(np.diff(shuffle(10_000, key))) == 1).sum()) for key in range(50)]
    assert np.mean(still) == pytest.approx(2, abs=0.8)


def test_two_keys_give_unlike_orders():
    assert np.mean(shuffle(10_000, 1) == shuffle(10_000, 2)) < 0.001
