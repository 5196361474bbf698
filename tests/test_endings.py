"""Signs of the end of an episode, in walks that end for a known reason."""

import numpy as np
import pytest

from grd_offline.core.endings import LEAST, Endings


def walk(rng, limit=3.0):
    """A walk that ends beyond the limit on either side: place, speed, noise and a constant."""
    place, rows = 0.0, []
    for _ in range(60):
        speed = rng.normal()
        place += speed
        rows.append([place, speed, rng.normal(), 7.0])
        if abs(place) > limit:
            return np.array(rows, np.float32), True
    return np.array(rows, np.float32), False


def test_what_ends_episodes_is_found_though_it_is_so_on_both_sides():
    rng, endings = np.random.default_rng(0), Endings(4)
    for _ in range(200):
        endings.add(*walk(rng))
    assert endings.terminations > LEAST
    # The last step is a large one, so that the speed is a sign as well.
    assert endings.find_signs().tolist() == [True, True, False, False]


def test_a_large_offset_hides_nothing():
    rng, endings = np.random.default_rng(0), Endings(4)
    for _ in range(200):
        observations, terminated = walk(rng)
        endings.add(observations + np.array([1e6, 0, 1e6, 1e6]), terminated)
    assert endings.find_signs().tolist() == [True, True, False, False]


@pytest.mark.parametrize(("terminated", "expected"), [(False, False), (True, True)])
def test_with_few_terminations_everything_counts_and_with_none_nothing(terminated, expected):
    endings = Endings(2)
    for _ in range(5):
        endings.add(np.zeros((3, 2), np.float32), terminated)
    assert endings.find_signs().tolist() == [expected, expected]


def test_it_goes_on_from_its_state():
    rng, endings, other = np.random.default_rng(0), Endings(4), Endings(4)
    episodes = [walk(rng) for _ in range(60)]
    for episode in episodes[:30]:
        endings.add(*episode)
    other.load_state(endings.state())
    for episode in episodes[30:]:
        endings.add(*episode)
        other.add(*episode)
    for name, value in endings.state().items():
        np.testing.assert_array_equal(other.state()[name], value)
