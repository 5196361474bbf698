"""The page a person looks at."""

from grd_offline.report import write_report


def make_page(effects):
    metrics = {"data": "d.h5", "fit": "closed-form", "identifiability": {"findings": []}}
    masks = {
        "state_names": ["s0", "s1"],
        "action_names": ["a0"],
        "state_to_reward": [1, 1],
        "action_to_reward": [0],
        "state_to_state": [[1, 0], [0, 1]],
        "action_to_state": [[0, 1]],
        "compact": {"closure": [1, 1]},
    }
    episodes = [{"rewards": [0.0, 1.0], "std": [0.1, 0.1]}]
    return write_report({**metrics, "settings": {}}, masks, {"effects": effects}, episodes)


def make_effect(inputs, share):
    curve = {"grids": [[-2400.0, 1700.0]], "mean": [0.0, 1.0], "std": [0.0, 0.0]}
    return {"inputs": inputs, "share": share, **curve}


def test_effects_come_by_share_and_drawings_have_numbers():
    page = make_page([make_effect(["s0"], 0.3), make_effect(["s1"], 0.7)])
    assert page.index("s1: 70.0%") < page.index("s0: 30.0%")
    assert ">-2400<" in page
    assert ">1700<" in page
    assert "below 0" not in page


def test_pairs_are_named_as_one_and_negative_shares_explained():
    page = make_page([make_effect(["s0", "s1"], 1.1), make_effect(["s1"], -0.1)])
    assert "comes from s0 and s1 together; s1." in page
    assert "A share below 0" in page
