"""Turns of conversations as JSON lines with one score each; rewards per turn come back."""

import json

import numpy as np
import pytest

from grd_offline import DataError, DecomposeSettings, decompose, read


def write_turns(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def make_lines(count=20, key="turns"):
    rng = np.random.default_rng(0)
    return [
        {
            "id": f"c{number}",
            key: [{"text": "...", "features": [x, 1.0]} for x in rng.normal(size=2 + number % 3)],
            "score": number / 10,
        }
        for number in range(count)
    ]  # fmt: skip


def test_turns_become_episodes(tmp_path):
    lines = make_lines()
    episodes = read(write_turns(tmp_path / "talks.jsonl", lines))
    assert [episode.label for episode in episodes][:2] == ["c0", "c1"]
    assert episodes.observation_names == ("features[0]", "features[1]")
    assert episodes.action_size == 0
    np.testing.assert_array_equal(episodes.compute_returns(), [line["score"] for line in lines])


def test_rewards_come_back_as_lists(tmp_path):
    lines = make_lines()
    path = write_turns(tmp_path / "talks.jsonl", lines)
    decompose(path, tmp_path / "out", DecomposeSettings(method="uniform"))
    text = (tmp_path / "out" / "relabelled.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in text]
    assert [one["id"] for one in found] == [line["id"] for line in lines]
    for one, line in zip(found, lines, strict=True):
        assert len(one["rewards"]) == len(one["spread"]) == len(line["turns"])
        assert sum(one["rewards"]) == pytest.approx(line["score"])


def test_tokens_embeddings_and_named_features(tmp_path):
    lines = [
        {
            "tokens": [
                {"embedding": [0.5, k], "features": {"length": k, "role": role}}
                for role in ("user", "tool")
            ],
            "reward": k,
        }
        for k in range(3)
    ]
    episodes = read(write_turns(tmp_path / "texts.jsonl", lines))
    assert episodes.observation_names == (
        *("length", "role=tool", "role=user", "embedding[0]", "embedding[1]"),
    )
    assert [episode.label for episode in episodes] == ["0", "1", "2"]
    np.testing.assert_array_equal(episodes[2].observations[0], [2, 0, 1, 0.5, 2])
    bare = write_turns(tmp_path / "bare.jsonl", [{"turns": [[1.0], [2.0]], "score": 1}])
    assert read(bare)[0].observations.shape == (2, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1: expected an object"),
        ('{"score": 1}', "line 1: expected a list of turns"),
        ('{"turns": [], "score": 1}', "line 1: expected a list of turns"),
        ('{"turns": [{"text": "a"}], "score": 1}', "turn 0: expected features or an embedding"),
        ('{"turns": [[1]], "score": "good"}', "score: expected a number"),
        ('{"turns": [[1]]}', "no column holds rewards or outcomes"),
        ('{"turns": [[1], [1, 2]], "score": 1}', "row 1: 2 numbers, the row before has 1"),
        ('{"turns": [["a"]], "score": 1}', "expected lists of numbers"),
        ('{"turns": [[NaN]], "score": 1}', "row 0 of features"),
        ('{"id": 1, "turns": [[1]], "score": 1}\n' * 2, "line 2: id 1 is there twice"),
        ('{"turns": [[1]], "score": 1}\n{"turns": [{"embedding": [1]}], "score": 1}', "line 2"),
    ],
)
def test_bad_lines_are_refused(text, message, tmp_path):
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "bad.jsonl")
