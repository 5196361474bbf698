"""Draws, replay and optimiser."""

import numpy as np
import pytest
import torch

from grd_offline.learning.online.replay import FinishedEpisode, Replay
from grd_offline.networks.members.nn import (
    Stack,
    UniformNumbers,
    build_members,
    to_gumbel,
    to_index,
    to_normal,
)
from grd_offline.networks.members.optimiser import Adam

CPU = torch.device("cpu")


def draw(*shape):
    """Uniform numbers, the same in every run."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


def split_mix(value):
    """SplitMix64's finaliser, in Python's own numbers."""
    mask = 2**64 - 1
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def test_draws_are_split_mix():
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    seeds, stream, counter = [3, 12345], 1, 17
    numbers = UniformNumbers(seeds, 4, stream=stream, device="cpu").draw(torch.tensor(counter))
    for row, seed in zip(numbers, seeds, strict=True):
        key = split_mix((split_mix((seed * golden + stream) & mask) + counter * golden) & mask)
        bits = [split_mix((key + place * golden) & mask) >> 41 for place in range(4)]
        np.testing.assert_array_equal(row, [(b + 0.5) / 2**23 for b in bits])


def test_draws_of_a_member_do_not_depend_on_the_others():
    alone = UniformNumbers([7], 100, stream=0, device="cpu").draw(torch.tensor(5))
    group = UniformNumbers([1, 7, 2], 100, stream=0, device="cpu").draw(torch.tensor(5))
    assert torch.equal(alone[0], group[1])
    assert not torch.equal(group[0], group[1])


def test_draws_are_uniform_normal_and_gumbel():
    numbers = UniformNumbers([0, 1], 100_000, stream=0, device="cpu").draw(torch.tensor(1))
    assert numbers.min() > 0
    assert numbers.max() < 1
    np.testing.assert_allclose(np.histogram(numbers[0], 10, (0, 1))[0], 10_000, rtol=0.05)
    assert abs(np.corrcoef(numbers[0], numbers[1])[0, 1]) < 0.02
    assert abs(np.corrcoef(numbers[0, :-1], numbers[0, 1:])[0, 1]) < 0.02
    normal = to_normal(numbers)
    assert torch.isfinite(normal).all()
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    assert abs(to_gumbel(numbers).mean() - np.euler_gamma) < 0.02
    index = to_index(numbers, torch.tensor([3, 1]))
    assert index[0].unique().tolist() == [0, 1, 2]
    assert not index[1].any()


def make_episode(number, length, rng, terminated=False):
    observations = rng.normal(size=(length + 1, 3)).astype(np.float32)
    observations[:, 0] = number
    observations[:, 1] = np.arange(length + 1)
    actions = np.full((length, 2), number, np.float32)
    return FinishedEpisode(observations, actions, float(rng.normal()), terminated)


def fill(replay, kept, rng, count, longest, member=0):
    for _ in range(count):
        number = len(kept[member])
        episode = make_episode(number, int(rng.integers(1, longest + 1)), rng, number % 3 == 0)
        kept[member].append(episode)
        replay.add(member, episode)


@pytest.mark.long
@pytest.mark.parametrize(("count", "longest"), [(5, 10), (40, 10), (300, 10), (200, 1)])
def test_replay_gives_back_the_newest_episodes(count, longest):
    rng = np.random.default_rng(count)
    replay, kept = Replay(2, 100, 3, 2, 10, CPU), [[], []]
    fill(replay, kept, rng, count, longest)
    fill(replay, kept, rng, 3, longest, member=1)
    steps = replay.draw_steps(draw(2, 4000))
    for member in (0, 1):
        seen = set()
        for row in range(4000):
            number, time = steps.observations[member, row, :2].int().tolist()
            episode = kept[member][number]
            seen.add((number, time))
            ours, last = steps.next_observations[member, row], time == len(episode.actions) - 1
            np.testing.assert_array_equal(ours, episode.observations[time + 1])
            assert steps.actions[member, row, 0] == number
            total = np.float32(episode.episode_return)
            assert steps.returns[member, row] == total
            assert steps.delivered[member, row] == (total if last else 0)
            assert steps.terminated[member, row] == (episode.terminated and last)
        layout = replay.layouts[member]
        assert len(seen) == layout.steps <= 100
        # The newest episodes, as many as fit but for what is lost at the end of the ring.
        newest = {number for number, _ in seen}
        assert newest == set(range(len(kept[member]) - layout.episodes, len(kept[member])))
        held = sum(len(e.actions) for e in kept[member])
        assert (
            layout.steps > min(held, 100) - 25 or layout.steps + layout.episodes > replay.rows - 25
        )


def test_replay_draws_steps_evenly():
    rng, replay, kept = np.random.default_rng(0), Replay(1, 100, 3, 2, 30, CPU), [[]]
    fill(replay, kept, rng, 20, 30)
    steps = replay.draw_steps(draw(1, 50_000))
    pairs = steps.observations[0, :, :2].int()
    counts = torch.unique(pairs, dim=0, return_counts=True)[1]
    assert len(counts) == replay.layouts[0].steps
    np.testing.assert_allclose(counts, 50_000 / len(counts), rtol=0.25)


@pytest.mark.parametrize("rows", [None, 60])
def test_replay_lays_whole_episodes_end_to_end(rows):
    rng, replay, kept = np.random.default_rng(1), Replay(2, 100, 3, 2, 20, CPU), [[], []]
    for member in (0, 1):
        fill(replay, kept, rng, 15, 20, member)
    stretch = replay.draw_episodes(draw(2, 3), slice(0, 2), rows)
    for member in (0, 1):
        for place in range(3):
            inside = stretch.valid[member, place]
            number = int(stretch.actions[member, inside][0, 0])
            episode = kept[member][number]
            np.testing.assert_array_equal(
                stretch.observations[member, inside], episode.observations[:-1]
            )
            assert stretch.lengths[member, place] == len(episode.actions) == inside.sum()
            np.testing.assert_allclose(
                stretch.returns[member, place], episode.episode_return, rtol=1e-6
            )
    assert stretch.valid.sum(1).max() == 1
    one = replay.draw_episodes(draw(1, 3), slice(1, 2), rows)
    number = int(one.actions[0, one.valid[0, 0]][0, 0])
    np.testing.assert_array_equal(
        one.observations[0, one.valid[0, 0]], kept[1][number].observations[:-1]
    )


def test_replay_draws_distinct_steps_of_episodes():
    rng, replay, kept = np.random.default_rng(2), Replay(1, 100, 3, 2, 20, CPU), [[]]
    fill(replay, kept, rng, 10, 20)
    drawn = replay.draw_from_episodes(draw(1, 6), draw(1, 6, 20), 8, slice(0, 1))
    for place in range(6):
        valid = drawn.valid[0, place]
        times = drawn.observations[0, place, valid, 1].int().tolist()
        length = int(drawn.lengths[0, place])
        assert len(times) == len(set(times)) == min(8, length)
        assert max(times) < length
        next_times = drawn.next_observations[0, place, valid, 1].int().tolist()
        assert next_times == [time + 1 for time in times]


@pytest.mark.parametrize("longest", [3, 10])
def test_episodes_that_are_added_at_once(longest):
    """The same as one after the other, also where some make room for others."""
    rng, one, other = np.random.default_rng(6), *(Replay(2, 30, 3, 2, 10, CPU) for _ in range(2))
    for number in range(12):
        lengths = rng.integers(1, longest + 1, 5)
        finished = [(k % 2, make_episode(number, int(n), rng)) for k, n in enumerate(lengths)]
        rows = [one.add(member, episode) for member, episode in finished]
        assert other.add_all(finished) == rows
        uniform = draw(2, 200)
        for ours, theirs in zip(one.draw_steps(uniform), other.draw_steps(uniform), strict=True):
            assert torch.equal(ours, theirs)
        for ours, theirs in zip(
            one.draw_episodes(draw(2, 4), slice(0, 2)),
            other.draw_episodes(draw(2, 4), slice(0, 2)),
            strict=True,
        ):
            assert torch.equal(ours, theirs)


def test_replay_refuses_what_does_not_fit():
    replay = Replay(1, 5, 3, 2, 10, CPU)
    with pytest.raises(ValueError, match="at most 5 steps, got 6"):
        replay.add(0, make_episode(0, 6, np.random.default_rng(0)))


def test_replay_is_the_same_after_saving():
    rng, replay, kept = np.random.default_rng(3), Replay(2, 60, 3, 2, 10, CPU), [[], []]
    for member in (0, 1):
        fill(replay, kept, rng, 40 if member else 4, 10, member)
    other = Replay(2, 60, 3, 2, 10, CPU)
    other.load_state(replay.state())
    extra = make_episode(99, 7, rng)
    for one in (replay, other):
        one.add(0, extra)
        one.add(1, extra)
    uniform = draw(2, 500)
    for ours, theirs in zip(replay.draw_steps(uniform), other.draw_steps(uniform), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("is_saved", [False, True])
def test_replay_follows_steps_to_the_end_of_their_episode(is_saved):
    """Also where old episodes have left and in the last row, and after loading."""
    rng, replay, kept = np.random.default_rng(4), Replay(2, 60, 3, 2, 10, CPU), [[], []]
    for member in (0, 1):
        fill(replay, kept, rng, 40 if member else 4, 10, member)
    if is_saved:
        before, replay = replay, Replay(2, 60, 3, 2, 10, CPU)
        replay.load_state(before.state())
    steps = replay.draw_steps(draw(2, 300))
    ahead, valid = replay.follow(steps.rows, 4)
    numbers = ahead.observations[..., :2].view(2, 300, 4, 2).int()
    for member in (0, 1):
        for row in range(300):
            number, time = steps.observations[member, row, :2].int().tolist()
            length = len(kept[member][number].actions)
            count = min(4, length - time)
            assert valid[member, row].tolist() == [k < count for k in range(4)]
            expected = [[number, time + k] for k in range(count)]
            expected += [[number, time]] * (4 - count)
            assert numbers[member, row].tolist() == expected


def make_stack(seeds):
    return build_members(lambda generator: Stack(1, (3, 5, 1), generator=generator), seeds)


def test_adam_is_adam():
    rates = torch.tensor([1e-2, 3e-3])
    ours, theirs = make_stack([0, 1]), [make_stack([0]), make_stack([1])]
    adam = Adam([ours], rates)
    optimisers = [
        torch.optim.Adam(net.parameters(), lr=float(rate))
        for net, rate in zip(theirs, rates, strict=True)
    ]
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        inputs = torch.randn((2, 8, 3), generator=generator)
        adam.step(ours(inputs).square().mean((1, 2)))
        for net, optimiser, own in zip(theirs, optimisers, inputs, strict=True):
            optimiser.zero_grad()
            net(own.unsqueeze(0)).square().mean().backward()
            optimiser.step()
    for member, net in enumerate(theirs):
        for mine, other in zip(ours.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(mine[member], other[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_loss_moves_nothing_and_reaches_no_other_member(bad):
    net, alone = make_stack([0, 1]), make_stack([1])
    adam, other = (
        Adam([net], torch.full((2,), 1e-2)),
        Adam([alone], torch.ones(1) / 100),
    )
    inputs = torch.randn((2, 8, 3), generator=torch.Generator().manual_seed(0))
    before = adam.flat.values[0].clone()
    for _ in range(3):
        adam.step(net(inputs).square().mean((1, 2)) * torch.tensor([bad, 1.0]))
        other.step(alone(inputs[1:]).square().mean((1, 2)))
    assert torch.equal(adam.flat.values[0], before)
    assert adam.skipped.flatten().tolist() == [3, 0]
    torch.testing.assert_close(adam.flat.values[1], other.flat.values[0])
    adam.step(net(inputs).square().mean((1, 2)))
    assert not torch.equal(adam.flat.values[0], before)
    assert torch.isfinite(adam.flat.values).all()
