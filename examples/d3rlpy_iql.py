"""d3rlpy's IQL on relabelled data."""

import sys

import d3rlpy

from grd_offline.interop import to_d3rlpy

folder = sys.argv[1] if len(sys.argv) > 1 else "sample-grd"


def main() -> None:
    dataset = to_d3rlpy(folder)
    agent = d3rlpy.algos.IQLConfig(batch_size=64).create(device="cpu:0")
    agent.fit(
        dataset,
        n_steps=50,
        n_steps_per_epoch=50,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    episode = dataset.episodes[0]
    print(f"an action for each of {len(episode.observations)} observations:")
    print(agent.predict(episode.observations)[:3].round(3))


if __name__ == "__main__":
    main()
