"""Settings describe themselves, and the commands make their options from them."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields

import click
import pytest
from click.testing import CliRunner

from grd_offline.cli.options import pick_settings, setting_options
from grd_offline.cli.program import cli
from grd_offline.core.errors import DataError
from grd_offline.core.settings import Settings, describe_settings, setting
from grd_offline.learning.settings import CollectSettings, OfflineSettings, OnlineSettings
from grd_offline.methods.settings import DecomposeSettings

ALL = (CollectSettings, DecomposeSettings, OfflineSettings, OnlineSettings)
COMMANDS = {
    "collect": CollectSettings,
    "decompose": DecomposeSettings,
    "train-offline": OfflineSettings,
    "judge": OfflineSettings,
    "train-online": OnlineSettings,
}


@dataclass(frozen=True)
class Sample(Settings):
    place: str = setting(MISSING, "Place to look at.")
    seeds: int = setting(5, "Number of seeds.", at_least=1, at_most=1000)
    rate: float = setting(0.5, "Learning rate.", above=0, at_most=1)
    kinds: tuple[str, ...] = setting(
        ("one",), "Kinds to use.", names=("one", "two"), option="--kind"
    )
    mode: str = setting("slow", "Mode of work.", names=("slow", "fast"))
    limit: int | None = setting(None, "Largest number of steps.", at_least=1)
    loud: bool = setting(False, "Print more.")
    extra: Mapping[str, object] = setting(None, "Further values.", factory=dict, option="--with")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"place": 3}, "place: got 3, which has the wrong type"),
        ({"seeds": 0}, "seeds: expected a whole number of at least 1, got 0"),
        ({"seeds": True}, "seeds: expected a whole number of at least 1, got True"),
        ({"seeds": 1.5}, "seeds: expected a whole number of at least 1, got 1.5"),
        ({"seeds": 1001}, "seeds: expected at most 1,000, got 1,001"),
        ({"rate": 0.0}, "rate: expected more than 0 and at most 1, got 0.0"),
        ({"rate": float("nan")}, "rate: expected more than 0 and at most 1, got nan"),
        ({"rate": "x"}, "rate: expected a number, got 'x'"),
        ({"kinds": ()}, "kinds: expected at least one"),
        ({"kinds": ("one", "one")}, "kinds: got the same value twice"),
        ({"kinds": "one"}, "kinds: expected a tuple, got 'one'"),
        ({"kinds": ("three",)}, "kinds: expected one of one, two, got 'three'"),
        ({"mode": "fastest"}, "mode: expected one of slow, fast, got 'fastest'"),
        ({"limit": 0}, "limit: expected a whole number of at least 1, got 0"),
        ({"loud": "yes"}, "loud: got 'yes', which has the wrong type"),
        ({"extra": 3}, "extra: got 3, which has the wrong type"),
    ],
)
def test_values_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(DataError) as refused:
        Sample(**{"place": "here", **changes})
    assert str(refused.value) == words


def test_options_have_what_the_fields_have():
    seen = {}

    @click.command()
    @setting_options(Sample, "place", place={"required": True})
    @setting_options(Sample, "seeds", "rate", "kinds", "mode", "limit", "loud", "extra")
    def command(**options):
        seen.update(pick_settings(Sample, options))

    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "--seeds INTEGER Number of seeds. [default: 5; at least 1 and at most 1,000]" in text
    assert "--rate FLOAT Learning rate. [default: 0.5; more than 0 and at most 1]" in text
    assert "--kind [one|two][,...] Kinds to use. [default: one]" in text
    assert "--mode [slow|fast] Mode of work. [default: slow]" in text
    assert "--limit INTEGER Largest number of steps. [at least 1]" in text
    done = CliRunner().invoke(command, ["--place", "here"])
    assert done.exit_code == 0, done.output
    assert Sample(**seen) == Sample("here")
    line = "--place there --seeds 2 --kind one,two --mode fast --loud --with a=1 --with b=c"
    done = CliRunner().invoke(command, line.split())
    extra = {"a": 1, "b": "c"}
    expected = Sample("there", 2, kinds=("one", "two"), mode="fast", loud=True, extra=extra)
    assert Sample(**seen) == expected


@pytest.mark.parametrize("settings", ALL, ids=lambda settings: settings.__name__)
def test_every_field_is_described_in_whole_sentences(settings):
    for name, described in describe_settings(settings).items():
        text = described.setting.text
        assert len(text.split()) > 1, name
        assert text.endswith("."), name
    assert len(describe_settings(settings)) == len(fields(settings))


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_describes_a_setting_for_itself(name):
    described = describe_settings(COMMANDS[name])
    for option in cli.commands[name].params:
        if isinstance(option, click.Option) and option.name in described:
            words = described[option.name].setting
            # `judge` must evaluate, and `--alternate` is the opposite of its setting.
            if (name, option.name) not in (("judge", "environment"), ("train-online", "overlap")):
                assert option.help == words.text


def test_help_needs_no_heavy_package():
    code = (
        "import sys, contextlib, io\n"
        "from grd_offline.cli.program import cli\n"
        f"for name in {list(COMMANDS)}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        cli.main([name, '--help'])\n"
        "print([name for name in ('torch', 'numpy', 'gymnasium') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
