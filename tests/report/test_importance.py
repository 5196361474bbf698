"""What each effect adds and how important it is: the numbers behind bars, lines and drawings."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from decompositions import MEAN, make_effect, refer, write_decomposition, write_model
from pages import find_payload, find_text, report_decomposition
from reward_models import make_effects, make_model

from grd_offline.core.steps import StepBatch
from grd_offline.methods.result import read_decomposition
from grd_offline.report.decomposed import measure_edges, measure_importance, read_tracks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(write_decomposition(tmp_path_factory.mktemp("importance") / "grd"))


def measure(folder):
    record = read_decomposition(folder)
    return record, measure_importance(record, read_tracks(record))


def draw_steps(count=200):
    return make_effects().draw_inputs(np.random.default_rng(0), count)[:, :7]


def test_the_mean_and_all_terms_sum_to_the_reward():
    model, rows = make_effects(), draw_steps(1500)  # more than one block
    terms = model.predict_terms(StepBatch(rows[:, :5], rows[:, 5:]))
    assert terms.shape == (5, 1500)
    np.testing.assert_allclose(
        model.constant + terms.sum(0),
        model.predict(StepBatch(rows[:, :5], rows[:, 5:])),
        atol=1e-12,
    )


def test_effects_of_the_same_columns_are_one_term():
    model, rows = make_effects((0, 0, 5)), draw_steps()
    terms = model.predict_terms(StepBatch(rows[:, :5], rows[:, 5:]))
    assert len(terms) == len(model.explain().effects) == 4  # two parts of s0, in one curve
    np.testing.assert_allclose(
        model.constant + terms.sum(0),
        model.predict(StepBatch(rows[:, :5], rows[:, 5:])),
        atol=1e-12,
    )


def test_shares_are_variances_and_never_negative():
    rng = np.random.default_rng(1)
    first = rng.normal(size=1000)
    # The second takes back most of the first: their covariance is negative.
    parts = np.stack([2 * first, -first, *np.zeros((3, 1000))], 1)
    shares = make_effects().measure_shares(parts)
    assert shares.tolist() == pytest.approx([0.8, 0.2, 0, 0, 0])
    assert make_effects().measure_shares(np.zeros((10, 5))).tolist() == [0] * 5
    same = make_effects((0, 0, 5)).measure_shares(parts)  # one curve: its variance is that of 1 x
    assert same.tolist() == pytest.approx([1, 0, 0, 0, 0])


def test_an_input_counts_alone_and_together_with_others(tmp_path):
    effects = [
        make_effect(["speed"], 0.5),
        make_effect(["speed'"], 0.1),
        make_effect(["height", "push"], 0.3),
        make_effect(["push"], 0.1),
    ]
    record, found = measure(write_decomposition(tmp_path / "grd", effects=effects))
    assert [(one.name, one.alone, one.joint) for one in found] == [
        ("speed", pytest.approx(0.6), 0), ("push", 0.1, 0.3), ("height", 0, 0.3)
    ]  # fmt: skip
    page = report_decomposition(record.folder)
    bars = find_payload(page)["importance"]
    assert bars[1] == {"name": "push", "alone": 0.1, "joint": 0.3}
    assert all(0 <= bar["alone"] + bar["joint"] <= 1 for bar in bars)
    assert "the bars can add up to more than 100 %" in find_text(page)
    # The same numbers are on the lines of the graph that lead to the reward.
    assert find_payload(page)["graph"]["reward"] == {
        "state": [None, 0.6, None], "action": [0.4], "terminated": None
    }  # fmt: skip


def test_inputs_of_one_dimension_are_together():
    speed, *others, push, ended = refer(
        ["speed", "speed'", "speed (midpoint)", "push", "terminated"]
    )
    assert {one.at_start for one in others} == {speed}
    assert len({speed, *others, push, ended}) == 5
    assert (push.at_start, ended.at_start) == (push, ended)


def test_all_edges_have_one_scale(folder):
    masks = json.loads((folder / "masks.json").read_text())
    masks["score"]["state_to_state"] = [[0.5 * np.log(4), 0, 0], [0, 0, 0], [0, 0.01, 9.0]]
    record, found = measure(folder)
    edges = measure_edges(replace(record, masks=masks), found)
    # Information of log(4) / 2 nats leaves a quarter of the variance.
    assert edges["state_to_state"][0].tolist() == [pytest.approx(0.75), 0, 0]
    assert edges["state_to_state"][2, 1] == pytest.approx(0.02, abs=1e-3)
    assert edges["state_to_reward"].tolist() == [0, 0.9, 0]
    assert all((edge >= 0).all() and (edge <= 1).all() for edge in edges.values())


def test_a_reward_that_is_no_sum_is_measured_by_shuffling(tmp_path):
    folder = write_decomposition(tmp_path / "grd", effects=[], fit="rrd",
                                 states=tuple("abcde"), actions=("x", "y"))  # fmt: skip
    (folder / "reward_model").rmdir()
    names = {"observation_names": tuple("abcde"), "action_names": ("x", "y")}
    make_model("quadratic", **names).save(folder / "reward_model")
    _, found = measure(folder)
    assert {one.name for one in found} == {"b", "x", "y"}  # those of the mask
    assert all(0 < one.total <= 1 for one in found)
    assert "exchanging the values" in find_text(report_decomposition(folder))


def test_the_terms_of_a_step_lead_to_its_reward(folder):
    tracks = read_tracks(read_decomposition(folder))
    assert tracks.terms == ["speed", "push"]
    for track in tracks.chosen.values():
        np.testing.assert_allclose(MEAN + np.sum(track.terms, 0), track.rewards, atol=1e-9)
        np.testing.assert_allclose(track.terms[0], track.inputs[0] - MEAN, atol=1e-9)
    payload = find_payload(report_decomposition(folder))
    assert payload["viewer"]["constant"] == MEAN
    assert payload["viewer"]["series"]["terms"] == ["speed", "push"]


def test_a_correction_of_exact_returns_is_a_term_of_its_own(tmp_path):
    folder = write_model(write_decomposition(tmp_path / "grd"))
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["settings"]["exact_returns"] = True
    (folder / "metrics.json").write_text(json.dumps(metrics))
    tracks = read_tracks(read_decomposition(folder))
    assert tracks.terms[-1] == "correction to the exact return"
    track = tracks.chosen[0]
    np.testing.assert_allclose(MEAN + np.sum(track.terms, 0), track.rewards, atol=1e-12)


def test_the_data_lie_below_the_curves(folder):
    (speed, _) = find_payload(report_decomposition(folder))["effects"]
    density = np.frombuffer(base64.b64decode(speed["density"]), np.uint8)
    sample = read_tracks(read_decomposition(folder)).sample[refer(["speed"])[0]]
    counts = np.histogram(np.clip(sample, -2, 2), 48, (-2, 2))[0]
    assert density.max() == 255
    assert ((density > 0) == (counts > 0)).all()


def test_a_model_that_does_not_fit_its_effects_is_one_line(folder, tmp_path, capsys):
    from pages import refuse_report

    broken = write_model(
        write_decomposition(tmp_path / "grd", effects=[make_effect(["tilt"], 1.0)])
    )
    refuse_report([str(broken)], "do not fit together", capsys)
