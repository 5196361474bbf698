"""Spaces of all kinds as vectors, in the order and with the names that datasets have."""

import choices
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text, Tuple

from grd_offline.core.errors import DataError
from grd_offline.io.formats.record import flatten
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.worlds.spaces import (
    find_sizes,
    flatten_batch,
    list_observation_leaves,
    make_action_leaf,
    make_flattener,
    name_columns,
)

NESTED = Dict(
    zeta=Discrete(3, start=-1),
    alpha=Tuple((Box(-1, 1, (2,)), MultiDiscrete([2, 3]))),
    beta=Dict(x=Box(-1, 1, ()), grid=Box(0, 1, (2, 2))),
)


@pytest.fixture(autouse=True)
def _register():
    choices.register()


def test_a_nested_observation_has_the_same_columns_everywhere():
    NESTED.seed(0)
    leaves = list_observation_leaves(NESTED)
    flat = make_flattener(NESTED)
    for _ in range(5):
        sample = NESTED.sample()
        arrays = {nested.leaf.path: np.asarray(nested.pick(sample))[None] for nested in leaves}
        stored = flatten([nested.leaf for nested in leaves], arrays, "observations")[0]
        np.testing.assert_array_equal(flat(sample), stored)
        np.testing.assert_array_equal(flatten_batch(NESTED, sample, 1)[0], stored)
    assert name_columns([nested.leaf for nested in leaves], "state") == (
        *("alpha.0[0]", "alpha.0[1]"),
        *("alpha.1[0]=0", "alpha.1[0]=1", "alpha.1[1]=0", "alpha.1[1]=1", "alpha.1[1]=2"),
        *("beta.grid[0,0]", "beta.grid[0,1]", "beta.grid[1,0]", "beta.grid[1,1]", "beta.x"),
        *("zeta=-1", "zeta=0", "zeta=1"),
    )


def test_a_choice_that_does_not_exist_is_refused():
    flat = make_flattener(Discrete(3, start=5))
    np.testing.assert_array_equal(flat(6), [0, 1, 0])
    with pytest.raises(DataError, match="observations: 8, expected a choice from 5 to 7"):
        flat(8)


def test_spaces_without_numbers_are_refused():
    with pytest.raises(DataError, match=r"observations: expected numbers .*, got Text\(1, 4"):
        list_observation_leaves(Text(4))
    with pytest.raises(DataError, match="actions: expected a Box of floats or discrete choices"):
        make_action_leaf(Text(4))


@pytest.mark.parametrize("observed", choices.OBSERVATIONS)
def test_an_environment_takes_and_gives_vectors(observed):
    environment = VectorEnvironment(choices.ID, {"observed": observed}, None)
    assert (environment.choices, environment.first_choice) == (3, 1)
    first = environment.reset(0)
    assert first.shape == (environment.observation_size,)
    assert first.dtype == np.float32
    base = environment.environment.unwrapped
    for _ in range(3):
        kind = base.kind
        _, reward, _, _ = environment.step(np.eye(3, dtype=np.float32)[kind])
        assert reward == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"observed": "image"}, "observations: images of shape (8, 8, 3) are not supported"),
        ({"observed": "image"}, "embeddings"),
        ({"acted": "several"}, "one choice (Discrete) or a bounded one-dimensional Box"),
    ],
)
def test_what_no_policy_can_be_trained_for_is_told_in_one_line(arguments, words):
    with pytest.raises(DataError) as caught:
        VectorEnvironment(choices.ID, arguments, None)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_vector_of_an_environment_is_that_of_its_dataset(tmp_path):
    import grd_offline

    file = tmp_path / "data.h5"
    grd_offline.collect(choices.ID, file, episodes=2, workers=1, seed=3)
    episodes = grd_offline.read(file)
    environment = VectorEnvironment(choices.ID, {}, None)
    assert episodes.discrete_actions
    assert episodes.action_names == ("action=1", "action=2", "action=3")
    assert "goal.x" in episodes.observation_names
    seeds = np.random.SeedSequence(3, spawn_key=(0,))
    observed = [environment.reset(int(seeds.generate_state(1)[0]))]
    observed += [environment.step(action)[0] for action in episodes[0].actions]
    np.testing.assert_array_equal(np.stack(observed), episodes[0].observations)
    assert isinstance(gymnasium.make(choices.ID).observation_space, Dict)


def test_sizes_come_from_small_bounds():
    low = np.array([-4.8, -np.inf, -0.4, 0.0, -1e300, 0.0])
    high = np.array([4.8, np.inf, 0.3, 0.0, 1e300, 1e-40])
    space = Dict(a=Box(low, high, dtype=np.float64), b=Discrete(2))
    np.testing.assert_allclose(find_sizes(space), [1, 1, 0.4, 1, 1, 1, 1, 1], rtol=1e-6)
