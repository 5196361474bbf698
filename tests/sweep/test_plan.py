"""Sweep files: the jobs that follow from them, and what is refused."""

import tomllib

import pytest

from grd_offline.core.errors import DataError
from grd_offline.lab.sweep.plan import LEAST_EPISODE, LEAST_STEPS, read_plan


def write(folder, text):
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def plan(folder, text, **options):
    return read_plan(write(folder, text), **options)


BLOCK = """
[[jobs]]
command = "train-online"
options = { method = ["grd", "oracle"], steps = 1_000_000, set = { learning_rate = [1e-3, 3e-4] } }
grid = { env = ["Hopper", "Ant"], seed = [0, 1, 2, 3, 4] }
"""


def test_every_combination_is_a_job_and_seeds_are_members(tmp_path):
    found = plan(tmp_path, f"title = 'Two'\nabout = 'Why.'\n{BLOCK}")
    assert (found.title, found.about) == ("Two", "Why.")
    assert [job.name for job in found.jobs] == [
        "train-online-Hopper-seed0-4",
        "train-online-Ant-seed0-4",
    ]
    job = found.jobs[0]
    assert job.total == 1_000_000
    assert job.command == (
        *("train-online", "--method", "grd,oracle", "--steps", "1000000"),
        *("--set", "learning_rate=0.001,0.0003", "--env", "Hopper", "--seed", "0", "--seeds", "5"),
    )


def test_members_of_one_run_are_bounded(tmp_path):
    # Two methods with two values each are four members for every seed.
    found = plan(tmp_path, f"members = 8\n{BLOCK}")
    assert [job.name.rsplit("-", 2)[-2:] for job in found.jobs[:3]] == [
        ["seed0", "1"],
        ["seed2", "3"],
        ["Hopper", "seed4"],
    ]
    assert found.jobs[1].command[-4:] == ("--seed", "2", "--seeds", "2")
    assert [job.members for job in found.jobs[:3]] == [8, 8, 4]


def test_seeds_that_are_not_in_a_row_are_different_runs(tmp_path):
    text = "[[jobs]]\ncommand = 'train-online'\ngrid = { env = ['Ant'], seed = [7, 1, 2] }\n"
    assert [job.command[-4:] for job in plan(tmp_path, text).jobs] == [
        ("--seed", "1", "--seeds", "2"),
        ("--seed", "7", "--seeds", "1"),
    ]


def test_commands_with_data(tmp_path):
    text = """
    [[jobs]]
    command = "decompose"
    options = { truth = "true_rewards", exact_returns = true }
    grid = { file = ["data/a.h5", "data/b.h5"], gamma = [0.9, 1.0] }
    [[jobs]]
    command = "judge"
    options = { file = "a.h5", env = "Hopper", observed = false, env-arg = { x = 1, y = "z" } }
    """
    jobs = plan(tmp_path, text).jobs
    assert [job.name for job in jobs] == [
        *("decompose-a-gamma=0.9", "decompose-a-gamma=1"),
        *("decompose-b-gamma=0.9", "decompose-b-gamma=1", "judge"),
    ]
    assert jobs[0].command == (
        *("decompose", "data/a.h5", "--truth", "true_rewards", "--exact-returns"),
        *("--gamma", "0.9"),
    )
    assert jobs[-1].command == (
        *("judge", "a.h5", "--env", "Hopper", "--no-observed"),
        *("--env-arg", "x=1", "--env-arg", "y=z"),
    )


ARGUMENTS = """
[[jobs]]
command = "train-online"
[jobs.options]
env = "Hopper"
[jobs.options.env_arg]
range = [0.2, 1.0]
nested = [[1, 2], [3]]
table = { x = 1, y = ["a", true] }
whole = 3
fraction = 1.0
flag = false
text = "door-lock-v3"
empty = ""
digits = "5"
word = "true"
quoted = '"a"'
number = "NaN"
"""


def test_arguments_of_an_environment_come_back_as_they_were(tmp_path):
    from grd_offline.cli.train import train_online

    (job,) = plan(tmp_path, ARGUMENTS).jobs
    parsed = train_online.make_context("train-online", list(job.command[1:])).params["env_args"]
    meant = tomllib.loads(ARGUMENTS)["jobs"][0]["options"]["env_arg"]
    assert repr(parsed) == repr(meant)
    shown = job.command[job.command.index("--env-arg") :]
    assert {"range=[0.2, 1.0]", "text=door-lock-v3", 'digits="5"', "flag=false"} < {*shown}
    texts = ARGUMENTS[: ARGUMENTS.index("[jobs.options.env_arg]")] + "env_arg = 'x=[1, 2]'\n"
    assert plan(tmp_path, texts).jobs[0].command[-2:] == ("--env-arg", "x=[1, 2]")


def test_a_negative_number_is_no_option(tmp_path):
    text = "[[jobs]]\ncommand = 'train-online'\noptions = { a = -1, b = [-0.5, 2], c = '-.5' }\n"
    command = plan(tmp_path, text).jobs[0].command
    assert command == ("train-online", *("--a", "-1", "--b", "-0.5,2", "--c", "-.5"))


def test_a_scale_makes_jobs_shorter(tmp_path):
    short = plan(tmp_path, BLOCK, scale=0.001).jobs[0]
    options = dict(zip(short.command[1::2], short.command[2::2], strict=True))
    assert options["--steps"] == "1000"
    assert options["--warmup"] == "900"
    assert (options["--round-updates"], options["--batch"]) == ("5", "32")
    assert options["--eval-every"] == "500"
    assert options["--eval-episodes"] == "1"
    assert options["--max-episode-steps"] == str(LEAST_EPISODE)
    assert options["--seeds"] == "1"
    half = plan(tmp_path, BLOCK, scale=0.5).jobs[0]
    assert half.total == 500_000
    assert "--seeds 2" in " ".join(half.command)
    least = plan(tmp_path, BLOCK, scale=1e-9).jobs[0]
    assert least.total == LEAST_STEPS


def test_nothing_becomes_longer_by_a_scale(tmp_path):
    text = "[[jobs]]\ncommand='train-online'\noptions={env='Ant',steps=50,warmup=0,eval_every=50}\n"
    (job,) = plan(tmp_path, text, scale=0.5).jobs
    options = dict(zip(job.command[1::2], job.command[2::2], strict=True))
    assert (options["--steps"], options["--warmup"], options["--eval-every"]) == ("50", "0", "50")


WRONG = {
    "": "expected at least one [[jobs]]",
    "jobs = 3": "expected at least one [[jobs]]",
    "jobs = [": "is not TOML",
    "tite = 'a'": "unknown key 'tite': expected about, jobs, members, paper, title",
    "[[jobs]]\nname = 'a'": "jobs, block 1: expected a command out of decompose, judge",
    "[[jobs]]\ncommand = 'train'": "train-online, got 'train'",
    "[[jobs]]\ncommand = 'judge'\nopts = {}": "unknown key 'opts'",
    "[[jobs]]\ncommand = 'judge'": "judge needs data: expected a file",
    "[[jobs]]\ncommand = 'judge'\ngrid = { file = [] }": "grid: file: expected a list of values",
    "[[jobs]]\ncommand = 'judge'\ngrid = { file = 'a' }": "grid: file: expected a list of values",
    "[[jobs]]\ncommand = 'judge'\ngrid = { file = ['a', 'a'] }": "the same value twice",
    "[[jobs]]\ncommand = 'judge'\noptions = { out = 'a' }": "out cannot be given: each job has",
    "[[jobs]]\ncommand = 'judge'\nname = '../a'": "name: expected letters",
    "[[jobs]]\ncommand = 'train-online'\noptions = { env = 'A' }\ngrid = { env = ['A'] }": (
        "env is among the options and in the grid"
    ),
    "[[jobs]]\ncommand = 'train-online'\noptions = { eval-every = 1, eval_every = 2 }": (
        "the same option twice"
    ),
    "[[jobs]]\ncommand = 'train-online'\ngrid = { seed = ['a'] }": "seed: expected whole numbers",
    "[[jobs]]\ncommand = 'train-online'\ngrid = { seeds = [1, 2] }": "list them as seed = [",
    "members = 0\n[[jobs]]\ncommand = 'train-online'": "members: expected a whole number",
    "[[jobs]]\ncommand = 'train-online'\n[[jobs]]\ncommand = 'train-online'": (
        "two jobs are called train-online: give their blocks a name"
    ),
    "[[jobs]]\ncommand = 'train-online'\n[paper]\nnumbers = [{ mean = 1 }]": "expected a task",
    "[[jobs]]\ncommand = 'train-online'\noptions = { steps = 'a' }": "steps: expected a whole",
    "[[jobs]]\ncommand = 'train-online'\noptions = { seeds = 0 }": "seeds: expected 1 to 10,000",
    "[[jobs]]\ncommand = 'judge'\noptions = { seeds = 1_000_000_000 }": "10,000, got 1000000000",
    "[[jobs]]\ncommand = 'judge'\noptions = { file = ['a', 'b'] }": "belongs into the grid",
    "[[jobs]]\ncommand = 'judge'\noptions = { help = true }": "help cannot be given",
    "[[jobs]]\ncommand = 'judge'\ngrid = { 'out=/x' = [true] }": "name of an option, got 'out=/x'",
    "[[jobs]]\ncommand = 'judge'\noptions = { '-o' = true }": "expected the name of an option",
    "[[jobs]]\ncommand = 'judge'\noptions = { file = '' }": "does not begin with '-', got ''",
    "[[jobs]]\ncommand = 'judge'\ngrid = { file = ['a', '--help'] }": "with '-', got '--help'",
    "[[jobs]]\ncommand = 'judge'\noptions = { file = 'a', observed = '--help' }": (
        "observed: a text cannot begin with '-'"
    ),
    '[[jobs]]\ncommand = "judge"\noptions = { file = "a\\u0000" }': "zero byte",
    "[[jobs]]\ncommand = 'train-online'\noptions = { env_arg = ['x=1'] }": (
        "env-arg: expected a table such as { size = 3 }, got ['x=1']"
    ),
    "[[jobs]]\ncommand = 'train-online'\noptions = { env_arg = { 'a=b' = 1 } }": (
        "env-arg: expected a plain name, got 'a=b'"
    ),
    "[[jobs]]\ncommand = 'train-online'\noptions = { env_arg = { a = [2020-01-01] } }": (
        "env-arg: a: expected finite numbers, texts, lists or tables"
    ),
    "[[jobs]]\ncommand = 'train-online'\noptions = { env_arg = { a = inf } }": "finite numbers",
    f"members = {'1' * 5000}": "is not TOML",
    f"title = {'[' * 5000}": "is not TOML: nested too deep",
    "[[jobs]]\ncommand = 'train-online'\n[[paper.numbers]]\ntask = 'a'\nmethod = 'b'\n"
    f"mean = {'1' * 400}": "mean: expected at least -1e+100",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_wrong_file_is_refused_in_one_line(tmp_path, text):
    with pytest.raises(DataError) as error:
        plan(tmp_path, text)
    assert WRONG[text] in str(error.value)
    assert "sweep.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_long_names_keep_jobs_apart(tmp_path):
    text = f"[[jobs]]\ncommand = 'judge'\ngrid = {{ file = ['{'a' * 200}1', '{'a' * 200}2'] }}\n"
    names = [job.name for job in plan(tmp_path, text).jobs]
    assert len({*names}) == 2
    assert [len(name) for name in names] == [150, 150]


def test_a_missing_file_and_a_wrong_scale(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(DataError, match="scale: expected more than 0 and at most 1"):
        plan(tmp_path, BLOCK, scale=2)
