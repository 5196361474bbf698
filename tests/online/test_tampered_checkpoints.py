"""A checkpoint in which anything was changed is refused in one line, or the run goes on.

A refused one leaves the tables of the run as they were.
"""

import os
import random

import pytest
import tampering
import torch
from online_runs import write_stopped

from grd_offline import DataError
from grd_offline.learning.online.run import resume_online

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

TIMES = int(os.environ.get("GRD_OFFLINE_FUZZ", "1"))
PARTS, CASES = 4, 10 * TIMES
ODD = [
    *(None, True, -1, -5, 0, 1, 2**31, 2**62, 0.5, float("nan"), float("inf"), "x", ""),
    *([], [1], {}, {"a": 1}),
]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of three members that was stopped in the middle."""
    folder = tmp_path_factory.mktemp("online") / "run"
    more = {"methods": ("grd", "oracle"), "fits": ("closed-form", "quadratic")}
    return write_stopped(folder, 220, board=False, steps=240, warmup=60, **more)


def list_places(value, path=()):
    """The place of every number, text and array."""
    inner = value if isinstance(value, dict) and "array" not in value else None
    if isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        inner = dict(enumerate(value))
    if inner is None:
        yield path
    for key in inner or ():
        yield from list_places(value[key], (*path, key))


def change(value, chance):
    """Another value, which may not fit."""
    array = value["array"] if isinstance(value, dict) and "array" in value else value
    if not isinstance(array, torch.Tensor) or chance.random() < 0.2:
        return chance.choice(ODD)
    kind = chance.randrange(5)
    if kind == 0:
        array = array[:0] if array.ndim else torch.tensor(-5)
    elif kind == 1 and array.ndim:
        array = torch.cat([array, array])
    elif kind == 2:
        array = array.reshape(-1)[:1].clone()
    elif kind == 3:
        array = ~array if array.dtype == torch.bool else array.clone().fill_(-7)
    else:
        array = array * float("nan") if array.is_floating_point() else array.float()
    return {**value, "array": array} if isinstance(value, dict) else array


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_was_changed(stopped, tmp_path, part):
    whole = torch.load(stopped / "checkpoint.pt", weights_only=True)
    places = list(list_places(whole))
    assert len(places) > 200
    tables = [(stopped / name).read_text() for name in ("evaluations.csv", "log.csv")]
    refused = 0
    for number in range(part, CASES, PARTS):
        chance = random.Random(number)
        contents = torch.load(stopped / "checkpoint.pt", weights_only=True)
        *above, key = chance.choice(places)
        holder = contents
        for step in above:
            holder = holder[step]
        holder[key] = change(holder[key], chance)
        case = tmp_path / "case"
        tampering.copy(stopped, case)
        torch.save(contents, case / "checkpoint.pt")
        reason = None
        try:
            resume_online(case, workers=0, device="cpu")
        except DataError as error:
            reason = str(error)
        if reason is not None:
            assert reason.isprintable()
            found = [(case / name).read_text() for name in ("evaluations.csv", "log.csv")]
            assert found == tables, (number, above, key)
            refused += 1
    assert refused


@pytest.mark.parametrize("rounds", [-5, 10**6])
def test_a_round_that_the_run_does_not_have(stopped, tmp_path, rounds):
    case = tmp_path / "case"
    tampering.copy(stopped, case)
    contents = torch.load(case / "checkpoint.pt", weights_only=True)
    contents["run"]["rounds"] = rounds
    torch.save(contents, case / "checkpoint.pt")
    with pytest.raises(DataError, match=f"does not fit this run: ValueError: round {rounds} of"):
        resume_online(case, workers=0, device="cpu")
    assert (case / "evaluations.csv").read_text() == (stopped / "evaluations.csv").read_text()
