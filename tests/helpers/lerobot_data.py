"""A small LeRobot folder, written with pyarrow as LeRobot would."""

import json

import numpy as np


def write_lerobot(folder, *, episodes=12, version="v3.0", outcome="next.success"):
    """Two files of frames, as LeRobot writes them: lists of numbers, and their names in meta."""
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    rows = []
    for episode in range(episodes):
        steps = int(rng.integers(4, 9))
        for frame in range(steps):
            state, action = rng.normal(size=3), rng.normal(size=2)
            end = frame == steps - 1
            paid = bool(end and episode % 2) if outcome == "next.success" else float(state[0])
            rows.append((state, action, frame / 10, frame, episode, len(rows), 0, end, paid))
    lists = pyarrow.list_(pyarrow.float32())
    names = ("observation.state", "action", "timestamp", "frame_index", "episode_index", "index",
             "task_index", "next.done", outcome)  # fmt: skip
    arrays = [
        pyarrow.array([row[k] for row in rows], lists if k < 2 else None) for k in range(len(names))
    ]
    table = pyarrow.table(arrays, list(names))
    (folder / "data" / "chunk-000").mkdir(parents=True)
    half = len(rows) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        parquet.write_table(part, folder / "data" / "chunk-000" / f"file-{number:03d}.parquet")
    (folder / "meta").mkdir()
    info = {
        "codebase_version": version,
        "features": {
            "observation.state": {"dtype": "float32", "shape": [3], "names": ["x", "y", "z"]},
            "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["left", "right"]}},
            "observation.images.top": {"dtype": "video", "shape": [480, 640, 3], "names": None},
        },
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    return table
