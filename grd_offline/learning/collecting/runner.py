"""One environment that runs whole episodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import LARGEST, check_finite, check_rewards
from grd_offline.core.errors import DataError
from grd_offline.core.packages import find_version
from grd_offline.core.typing import AnyArray
from grd_offline.io.formats.record import Header, Leaves, Record, flatten
from grd_offline.learning.agents import EXPLORATIONS
from grd_offline.learning.agents.exploration import draw_box_actions, draw_discrete_actions
from grd_offline.learning.agents.saved import SavedPolicy, load_policies
from grd_offline.learning.collecting.settings import OF_TRAINED_POLICIES, CollectSettings
from grd_offline.learning.fleet.environment import describe_error, make_environment
from grd_offline.learning.fleet.watch import make_heartbeat
from grd_offline.learning.fleet.worker import WorkerTask
from grd_offline.worlds.spaces import describe_space, list_observation_leaves, make_action_leaf

if TYPE_CHECKING:
    import gymnasium as gym

_PACKAGES = ("grd-offline", "gymnasium", "mujoco", "numpy")


def deliver(rewards: NDArray[np.float64], delay: int | str, discount: float) -> AnyArray:
    """The rewards that a learner sees: sums at the steps that deliver them, and zeros elsewhere.

    With a delay of one step there is no sum to discount, and the rewards stay as they are.
    """
    if delay == 1:
        return rewards.copy()
    steps = len(rewards)
    starts = np.arange(0, steps, steps if delay == "end" else int(delay))
    stops = np.append(starts[1:], steps)
    delivered = np.zeros(steps)
    weighted = rewards if discount == 1.0 else rewards * discount ** np.arange(steps)
    delivered[stops - 1] = np.add.reduceat(weighted, starts)
    return delivered


class EpisodeRunner(WorkerTask):
    """One environment, with arrays that are filled again in every episode."""

    def __init__(self, settings: CollectSettings, memory: Any = None, index: int = 0) -> None:
        """Whoever watches finds the heartbeat at the `index` of shared `memory`."""
        self.settings = settings
        self.environment, self.id, self.step_limit = make_environment(
            settings.environment, settings.env_args, settings.max_episode_steps
        )
        self._observation_leaves = list_observation_leaves(self.environment.observation_space)
        self._action_leaf = make_action_leaf(self.environment.action_space)
        self._action_type = self.environment.action_space.dtype
        self._policies: list[SavedPolicy] = []
        if settings.policy not in EXPLORATIONS:
            self._policies = load_policies(settings.policy, settings.checkpoints)
            for policy in self._policies:
                self._check_fit(policy)
        self._observations = [
            np.empty((self.step_limit + 1, *nested.leaf.shape), nested.leaf.dtype)
            for nested in self._observation_leaves
        ]
        self._rewards = np.empty(self.step_limit)
        self.heartbeat = make_heartbeat(memory, index)
        masks = _true_masks(self.environment) if settings.keep_true_rewards else None
        self._noise_free_rewards = None if masks is None else np.empty(self.step_limit)
        self.header = self._make_header(masks)

    def _check_fit(self, policy: SavedPolicy) -> None:
        """Refuse a policy that was trained for another environment."""
        spec, space, name = policy.actor.spec, self.environment.action_space, policy.name
        expected = spec.observation_size, spec.action_size
        found = sum(n.leaf.size for n in self._observation_leaves), self._action_leaf.size
        if expected != found:
            raise DataError(
                f"{name} is for {expected[0]} observations and {expected[1]} actions, {self.id} "
                f"has {found[0]} and {found[1]}",
                field="policy",
            )
        if spec.is_discrete:
            fits = self._action_leaf.categories and getattr(space, "start", 0) == spec.first_choice
            acts = f"chooses from {spec.first_choice} to {spec.first_choice + spec.action_size - 1}"
        else:
            low, high = getattr(space, "low", np.nan), getattr(space, "high", np.nan)
            fits = np.allclose(low, spec.low) and np.allclose(high, spec.high)
            acts = f"acts from {min(spec.low):.4g} to {max(spec.high):.4g}"
        if not fits:
            raise DataError(
                f"{name} {acts}, {self.id} takes {describe_space(space)}", field="policy"
            )

    def close(self) -> None:
        with suppress(Exception):
            self.environment.close()

    def carry_out(self, order: int) -> Record:
        """Run the episode of that number from start to end."""
        seeds = np.random.SeedSequence(self.settings.seed, spawn_key=(order,))
        reset_seed = int(seeds.generate_state(1)[0])
        generator = np.random.default_rng(seeds.spawn(1)[0])
        attributes: dict[str, int | float | str] = {"seed": reset_seed}
        try:
            if self._policies:
                leaf = self._action_leaf
                actions = np.empty((self.step_limit, *leaf.shape), leaf.dtype)
                played = self._play(self._act(actions, attributes, generator), reset_seed)
            else:
                actions = self._draw_actions(self.settings.policy, self.step_limit, generator)
                # The environment gets a copy in its own type, because it may change an action.
                played = self._play(actions.astype(self._action_type), reset_seed)
            return self._make_record(actions, *played, attributes)
        except DataError as error:
            raise error.at(episode=order) from error.__cause__

    def _draw_actions(self, policy: str, steps: int, generator: np.random.Generator) -> AnyArray:
        space, leaf = self.environment.action_space, self._action_leaf
        if leaf.categories is None:
            box: Any = space
            return draw_box_actions(policy, box.low, box.high, steps, generator)
        choices = [
            start + draw_discrete_actions(policy, count, steps, generator)
            for count, start in zip(leaf.categories, leaf.starts, strict=True)
        ]
        return np.stack(choices, axis=1).reshape(steps, *leaf.shape)

    def _act(
        self,
        actions: AnyArray,
        attributes: dict[str, int | float | str],
        generator: np.random.Generator,
    ) -> Iterator[AnyArray]:
        """Give the actions of the run's policies step by step, and fill `actions` with them."""
        share, stretch = self.settings.random_share, self.settings.switch_every or len(actions)
        for start in range(0, len(actions), stretch):
            part = actions[start : start + stretch]
            if share and generator.random() < share:
                name = "random"
                part[:] = self._draw_actions("random", len(part), generator)
                stepwise = iter(part.astype(self._action_type))
            else:
                policy = self._policies[generator.integers(len(self._policies))]
                name = policy.name
                stepwise = self._act_with(policy, start, part, generator)
            if attributes.setdefault("policy", name) != name:
                attributes["policy"] = "several"
            yield from stepwise

    def _act_with(
        self,
        policy: SavedPolicy,
        start: int,
        actions: AnyArray,
        generator: np.random.Generator,
    ) -> Iterator[AnyArray]:
        """Give the actions of one policy until `actions` is full."""
        actor, noise = policy.actor, None
        if self.settings.policy_noise == "sampled":
            noise = actor.draw_noise(len(actions), generator)
        for at in range(len(actions)):
            vector = self._flatten_step(start + at)
            action = actor.act_with_noise(vector, None if noise is None else noise[at])
            actions[at] = actor.decode(action)
            yield actions[at].astype(self._action_type)

    def _flatten_step(self, at: int) -> AnyArray:
        """(column,) the observation of this step of the episode, as policies take it."""
        leaves = [nested.leaf for nested in self._observation_leaves]
        if len(leaves) == 1 and leaves[0].categories is None and len(leaves[0].shape) == 1:
            row: AnyArray = self._observations[0][at]
            return row
        parts = zip(leaves, self._observations, strict=True)
        rows = {leaf.path: array[at : at + 1] for leaf, array in parts}
        flat: AnyArray = flatten(leaves, rows, "observations")[0]
        return flat

    def _play(self, actions: Iterable[AnyArray], seed: int) -> tuple[int, bool, bool]:
        """Step through an episode. Gives its length, and whether it was terminated or truncated."""
        step, rewards, noise_free = self.environment.step, self._rewards, self._noise_free_rewards
        pairs = zip(self._observations, self._observation_leaves, strict=True)
        leaves = [(array, nested.pick) for array, nested in pairs]
        at = -1
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                self.heartbeat += 1
                observation, _ = self.environment.reset(seed=seed)
                self._store_first(observation)
                for at, action in enumerate(actions):
                    self.heartbeat += 2  # The count stays odd during the episode.
                    observation, reward, terminated, truncated, info = step(action)
                    for array, pick in leaves:
                        array[at + 1] = pick(observation)
                    rewards[at] = reward
                    if noise_free is not None:
                        noise_free[at] = info["noise_free_reward"]
                    if terminated or truncated:
                        return at + 1, bool(terminated), bool(truncated)
        except DataError:
            raise
        except (Exception, SystemExit) as error:
            place = "at the reset" if at < 0 else f"at step {at}"
            raise DataError(f"{self.id} failed {place}: {describe_error(error)}") from error
        finally:
            self.heartbeat += 1
        return self.step_limit, False, True

    def _store_first(self, observation: Any) -> None:
        for array, nested in zip(self._observations, self._observation_leaves, strict=True):
            value = nested.pick(observation)
            if np.shape(value) != nested.leaf.shape:
                raise DataError(
                    f"expected shape {nested.leaf.shape}, as the observation space says, got "
                    f"{np.shape(value)}",
                    field="observations",
                )
            array[0] = value

    def _make_record(
        self,
        actions: AnyArray,
        steps: int,
        terminated: bool,
        truncated: bool,
        attributes: dict[str, int | float | str],
    ) -> Record:
        observations: Leaves = {}
        for array, nested in zip(self._observations, self._observation_leaves, strict=True):
            observations[nested.leaf.path] = array[: steps + 1].copy()
            if nested.leaf.categories is None:
                check_finite(array[: steps + 1], "observations", array, LARGEST)
        rewards = self._rewards[:steps].copy()
        check_rewards(rewards)
        delivered = deliver(rewards, self.settings.delay, self.settings.discount)
        check_rewards(delivered)
        terminations, truncations = np.zeros((2, steps), np.bool_)
        terminations[-1], truncations[-1] = terminated, truncated
        extras: Leaves = {}
        if self.settings.keep_true_rewards:
            extras["true_rewards"] = rewards
        if self._noise_free_rewards is not None:
            extras["noise_free_rewards"] = self._noise_free_rewards[:steps].copy()
        return Record(
            observations=observations,
            actions={self._action_leaf.path: actions[:steps].copy()},
            rewards=delivered,
            terminations=terminations,
            truncations=truncations,
            extras=extras,
            attributes=attributes,
        )

    def _make_header(self, masks: dict[str, Any] | None) -> Header:
        from grd_offline.worlds.environments import dimension_names

        settings = self.settings
        observation_names, action_names = dimension_names(self.environment)
        return Header(
            observation_leaves=tuple(nested.leaf for nested in self._observation_leaves),
            action_leaves=(self._action_leaf,),
            observation_names=observation_names,
            action_names=action_names,
            environment=self.id,
            delay="step" if settings.delay == 1 else settings.delay,
            discount=settings.discount,
            settings={
                "environment": self.id,
                "env_args": dict(settings.env_args),
                "episodes": settings.episodes,
                **({"first_episode": settings.first_episode} if settings.first_episode else {}),
                **self._describe_policy(),
                "seed": settings.seed,
                "delay": settings.delay,
                "discount": settings.discount,
                "keep_true_rewards": settings.keep_true_rewards,
                "max_episode_steps": self.step_limit,
                "versions": {name: find_version(name) for name in _PACKAGES},
            },
            truth={} if masks is None else {"masks": masks},
        )

    def _describe_policy(self) -> dict[str, Any]:
        if not self._policies:
            return {"policy": self.settings.policy}
        return {
            # The path is left out, because it differs between computers.
            "policy": Path(self.settings.policy).resolve().name,
            **{name: getattr(self.settings, name) for name in OF_TRAINED_POLICIES},
            "policies": [policy.describe() for policy in self._policies],
        }


def _true_masks(environment: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """The masks of a factored world; None for any other environment."""
    from grd_offline.worlds.environments import FactoredEnv

    if not isinstance(environment.unwrapped, FactoredEnv):
        return None
    masks = environment.unwrapped.world.masks
    return {name: np.asarray(mask).astype(int).tolist() for name, mask in masks.items()}
