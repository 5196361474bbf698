"""Reward models of unknown origin: whatever was done to one, it ends in one line, at once."""

import json
import os
import resource
import struct

import forked
import numpy as np
import pytest
import reward_models
from safetensors.numpy import load_file, save_file

from grd_offline import DataError, RewardModel

pytestmark = pytest.mark.long

kinds = pytest.mark.parametrize(
    "kind", [kind for kind in reward_models.FUNCTIONS if kind != "effects-none"]
)  # its tensors are empty
HUGE = 10**400


@pytest.fixture
def saved(kind, tmp_path):
    reward_models.make_model(kind).save(tmp_path / "model")
    return tmp_path / "model"


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def tamper_config(folder, **changes):
    config = config_of(folder)
    config.update(changes)
    (folder / "config.json").write_text(json.dumps(config))


def tamper_function(folder, **changes):
    tamper_config(folder, function={**config_of(folder)["function"], **changes})


def tamper_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def refuse(folder, message):
    """One line that names the file, and little memory: no more than 64 MiB at the peak."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=message) as caught:
        RewardModel.load(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 2**10
    line = str(caught.value)
    assert "\n" not in line
    assert str(folder) in line
    assert len(line) <= 1000


CONFIGS = {
    "version": (lambda c: c.update(version=99), "version: expected 1, got 99"),
    "version true": (lambda c: c.update(version=True), "version: expected 1, got True"),
    "version huge": (lambda c: c.update(version=HUGE), "version: expected 1, got 1000"),
    "format": (lambda c: c.update(format="other"), "is not a grd-offline reward model"),
    "function list": (lambda c: c.update(function=[]), "function: expected an object"),
    "about list": (lambda c: c.update(about=[1]), "about: expected an object"),
    "function empty": (lambda c: c.update(function={}), "kind is missing"),
    "kind": (lambda c: c["function"].update(kind="pickle"), "kind: expected effects"),
    "kind list": (lambda c: c["function"].update(kind=["x"]), "kind: expected effects"),
    "kind huge": (lambda c: c["function"].update(kind=HUGE), "kind: expected effects"),
    "new field": (lambda c: c["function"].update(new=1), "new: (not known|unknown)"),
    "no names": (lambda c: c.pop("action_names"), "action_names is missing"),
    "names text": (lambda c: c.update(observation_names="abcde"), "expected a list of strings"),
    "names of numbers": (lambda c: c.update(action_names=[1, 2]), "expected a list of strings"),
    "one name more": (
        lambda c: c.update(observation_names=[*"abcdef"], state_mask=[1] * 6, compact_mask=[1] * 6),
        "function: 5 state and 2 action dimensions, but 6 and 2 names",
    ),
    "mask short": (lambda c: c.update(state_mask=[1]), "state_mask: expected 5 times 0 or 1"),
    "mask of 2": (lambda c: c.update(action_mask=[1, 2]), "action_mask: expected 2 times 0 or 1"),
    "mask of halves": (lambda c: c.update(compact_mask=[0.5] * 5), "compact_mask: expected 5"),
    "mask huge": (lambda c: c.update(action_mask=[HUGE, 1]), "action_mask: expected 2"),
    "mask nested": (lambda c: c.update(action_mask=[[1], [0]]), "action_mask: expected 2"),
    "mask text": (lambda c: c.update(action_mask="10"), "action_mask: expected 2"),
    "mask missing": (lambda c: c.pop("compact_mask"), "compact_mask is missing"),
    "std negative": (lambda c: c.update(step_std=-1), "step_std: expected a number of at least 0"),
    "std nan": (lambda c: c.update(step_std=float("nan")), "step_std: expected a number"),
    "std huge": (lambda c: c.update(step_std=HUGE), "step_std: expected a number"),
    "std text": (lambda c: c.update(step_std="1"), "step_std: expected a number"),
}


@kinds
@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_does_not_fit_is_refused(name, saved):
    change, message = CONFIGS[name]
    config = config_of(saved)
    change(config)
    (saved / "config.json").write_text(json.dumps(config))
    refuse(saved, message)


@kinds
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "is not a grd-offline reward model"),
        ("null", "is not a grd-offline reward model"),
        ("[" * 100_000, "is not JSON"),
        ('{"a":' * 100_000, "is not JSON"),
        ('{"format": "grd-offline reward model", "version": ' + "1" * 5000 + "}", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
    ],
)
def test_a_config_that_is_none_is_refused(text, message, saved):
    (saved / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refuse(saved, message)


@kinds
def test_tensors_that_do_not_fit_are_refused(kind, saved):
    """Each tensor in turn: missing, misshapen, of another type, not finite; and one too many."""
    original = load_file(saved / "model.safetensors")
    for name, value in original.items():
        longer = np.concatenate([value, value[:1]]) if value.ndim else value
        for changed, message in (
            (None, f"{name}: (tensor missing|missing tensor)"),
            (longer, "expected (F|I).. of shape|expected shape|increasing inputs|too many"),
            (value[None], f"{name}: expected|expected 1, 3 and 2 dimensions"),
            (value.astype(np.float16), f"{name}: expected (F|I).. of shape .*, got F16"),
        ):
            tensors = {**original, name: changed}
            if changed is None:
                del tensors[name]
            save_file(tensors, saved / "model.safetensors")
            refuse(saved, message)
        if value.dtype.kind == "f":
            for bad in (np.nan, np.inf):
                broken = value.copy()
                broken.flat[0] = bad
                save_file({**original, name: broken}, saved / "model.safetensors")
                refuse(saved, f"{name}: nan or infinite")
    save_file({**original, "new": np.zeros(1)}, saved / "model.safetensors")
    refuse(saved, "new: tensor not expected")


@kinds
def test_a_file_that_is_cut_or_is_none_is_refused(saved):
    path = saved / "model.safetensors"
    whole = path.read_bytes()
    for size in (0, 4, 8, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refuse(saved, "is not a safetensors file|cannot be read")
    for head in (b"x" * 99, struct.pack("<Q", 2**62), b"\x80\x04K\x01."):
        path.write_bytes(head)
        refuse(saved, "is not a safetensors file")
    path.unlink()
    refuse(saved, "cannot be read")
    os.mkfifo(path)
    refuse(saved, "is not a regular file")
    (saved / "config.json").unlink()
    refuse(saved, "is not there: expected the folder of a grd-offline reward model")
    os.mkfifo(saved / "config.json")
    refuse(saved, "is not a regular file|cannot be read")


@kinds
def test_a_large_extra_tensor_is_refused_unread(saved):
    """A sparse gigabyte, announced in the head: no byte of it comes into memory."""
    path = saved / "model.safetensors"
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    head = json.loads(whole[8 : 8 + length])
    end = max(entry["data_offsets"][1] for name, entry in head.items() if name != "__metadata__")
    head["more"] = {"dtype": "U8", "shape": [2**30], "data_offsets": [end, end + 2**30]}
    text = json.dumps(head).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + whole[8 + length :])
        file.truncate(8 + len(text) + end + 2**30)
    refuse(saved, "more: tensor not expected")
    with path.open("ab") as file:
        file.truncate(2**31 + 1)
    refuse(saved, "larger than")


SIZES = {
    "effects": {"sizes": [10**9] * 5},
    "effects-next": {"sizes": [HUGE] * 5},
    "effects-midpoint": {"sizes": [2**20] * 5},
    "network": {"hidden": [10**9, 10**9]},
    "network-pair": {"features": 10**9},
    "network-next": {"members": HUGE},
    "quadratic": {"states": 10**9},
    "constant": {"actions": 10**9},
}


@kinds
def test_sizes_out_of_reach_are_refused_before_memory_is_taken(kind, saved):
    tamper_function(saved, **SIZES[kind])
    refuse(saved, "expected")


@pytest.mark.parametrize("kind", ["effects"])
@pytest.mark.parametrize("column", [-1, 12, 17, 2**63 - 1, -(2**63)])
def test_columns_that_the_first_version_did_not_have_are_refused(column, saved):
    first = {**config_of(saved)["function"], "format_version": 1}
    for name in (
        *("hidden_variance", "lasting_share", "shared_variance", "whole_variance"),
        *("ended_variance", "base", "outcome"),
    ):
        del first[name]
    tamper_config(saved, function=first)
    tamper_tensors(saved, lambda tensors: tensors["columns"].__setitem__(0, column))
    refuse(saved, "columns: expected 0 to 11")


@pytest.mark.parametrize("kind", ["network", "network-pair"])
def test_sizes_within_limits_but_not_in_the_file_are_refused(kind, saved):
    change = {"hidden": [2**20] * 16} if kind == "network" else {"features": 2**20}
    tamper_function(saved, **change)
    refuse(saved, "tensor missing|of shape|sizes")


@pytest.mark.parametrize("kind", ["effects"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"effects": [[0], [1], [2], [0, 1], [0, 1, 3]]}, "is not 1 to 4 increasing inputs"),
        ({"effects": [[0], [1], [2], [0, 1], [2, 1, 0]]}, "is not 1 to 4 increasing inputs"),
        ({"effects": [[0], [1], [0], [0, 1], [0, 1, 2]]}, "effects: expected each of them once"),
        ({"effects": [[0], [1], [2], [0, 1], [-1, 0, HUGE]]}, "increasing inputs"),
        ({"effects": [[0] * 50] * 5}, "effects: expected lists of 1 to 4 whole numbers"),
        ({"sizes": [4, 4, 3, 3]}, "sizes: expected 5, got 4"),
        ({"sizes": [True] * 5}, "sizes: expected a list of whole numbers"),
        ({"constant": HUGE}, "constant: expected a finite number"),
        ({"inflation": -1.0}, "inflation: expected a finite, non-negative number"),
        ({"noise_variance": float("nan")}, "noise_variance: expected a finite number"),
        ({"format_version": 7}, "format_version: expected 1 or 2 or 3 or 4 or 5 or 6, got 7"),
        ({"outcome": "medal"}, "outcome: expected number or success or preference"),
        ({"observation_names": [*"abc"]}, "function: 3 state and 2 action|columns: expected"),
    ],
)
def test_effects_that_do_not_fit_are_refused(change, message, saved):
    tamper_function(saved, **change)
    refuse(saved, message)


def set_range(low, high):
    def change(tensors):
        tensors["low"][0], tensors["high"][0] = low, high

    return change


@pytest.mark.parametrize("kind", ["effects"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_range(1, 1), "high: expected more than low"),
        (set_range(-1e308, 1e308), "low, high: expected a range"),
        (set_range(0, 3e-308), "low, high: expected a range"),
        (lambda t: t["columns"].__setitem__(0, -1), "columns: expected 0 to 17"),
        (lambda t: t["columns"].__setitem__(0, 18), "columns: expected 0 to 17"),
        (lambda t: t.update(tables=np.zeros((3, 2, 5000))), "expected at most 4096 features"),
        (lambda t: t.update(tables=t["tables"][:, :1]), "at least 2 grid points"),
    ],
)
def test_numbers_that_no_effect_has_are_refused(change, message, saved):
    tamper_tensors(saved, change)
    refuse(saved, message)


@pytest.mark.parametrize("kind", ["network", "quadratic"])
def test_a_spread_of_zero_is_refused(saved):
    tamper_tensors(saved, lambda t: t["std"].__setitem__(0, 0))
    refuse(saved, "std: expected numbers above 0")


@pytest.mark.parametrize("kind", ["network"])
def test_the_command_line_says_it_in_one_line(saved):
    tamper_config(saved, version=2)
    done = forked.run("export", saved, "--to", "torch-export")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "version: expected 1, got 2" in done.stderr


@pytest.mark.parametrize("kind", ["effects"])
def test_spreads_that_are_no_numbers_are_refused(saved):
    """Each number of the file is finite, but their squares are not."""
    tamper_tensors(saved, lambda t: t.update(factor=t["factor"] * 1e200))
    model = RewardModel.load(saved)
    steps = reward_models.make_steps()
    for ask in (model.uncertainty, model.predict_both):
        with pytest.raises(DataError, match="spreads that are nan or infinite: it is damaged"):
            ask(*steps)
