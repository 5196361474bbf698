"""What is installed is what was tested: the lowest versions, and the actions of CI."""

import re
import tomllib

from places import ROOT


def test_the_lowest_versions_that_are_allowed_are_those_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tested = (ROOT / "constraints-lowest.txt").read_text()
    tested = dict(re.findall(r"^([\w.-]+)==([\w.]+)$", tested, re.M))
    light = (ROOT / "requirements-core.txt").read_text().splitlines()
    light = [line for line in light if line and not line.startswith("#")]
    for line in [*project["dependencies"], *light]:
        name, lowest = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\w.]+)", line).groups()
        assert tested[name] == lowest, line


def test_actions_are_pinned_by_commit():
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (\S+)(.*)", file.read_text())
        assert used
        for action, version in used:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", version), action
