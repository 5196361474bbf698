"""Credit for the turns of made-up conversations, of which only one score each is known.

A turn has four features, and what it is worth is known here: a grounded answer earns 1, a tool that
is called costs 0.2, and a long turn costs more the longer it is. The score of a conversation is the
sum over its turns, and some noise. From the scores alone, the rewards of the turns come back.
"""

import json

import numpy as np

import grd_offline


def make_conversations(count: int = 300) -> tuple[list[dict], list[np.ndarray]]:
    """Lines for a .jsonl file, and the true credit of each turn."""
    rng = np.random.default_rng(0)
    lines, credit = [], []
    for number in range(count):
        turns = int(rng.integers(3, 12))
        grounded, tool = rng.integers(0, 2, (2, turns))
        length, politeness = rng.uniform(0, 1, (2, turns))
        credit.append(1.0 * grounded - 0.2 * tool - length**2)
        features = [
            {"grounded": int(g), "tool": int(t), "length": float(n), "politeness": float(p)}
            for g, t, n, p in zip(grounded, tool, length, politeness, strict=True)
        ]
        score = credit[-1].sum() + rng.normal(0, 0.1)
        turns_of_line = [{"features": one} for one in features]
        lines.append({"id": f"talk-{number}", "turns": turns_of_line, "score": float(score)})
    return lines, credit


def main() -> None:
    lines, credit = make_conversations()
    with open("talks.jsonl", "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    result = grd_offline.decompose("talks.jsonl", "talks-grd")
    print("what drives the score:", ", ".join(f"{n} {s:.0%}" for n, s in result.shares))
    with open(result.table) as file:
        found = [json.loads(line) for line in file]
    print(found[0])
    rewards = np.concatenate([line["rewards"] for line in found])
    correlation = np.corrcoef(rewards, np.concatenate(credit))[0, 1]
    print(f"correlation with the true credit of {len(rewards):,} turns: {correlation:.3f}")


if __name__ == "__main__":
    main()
