"""Every Python snippet of the README runs, in order, from the repository's root."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_snippets_run(tmp_path):
    (tmp_path / "datasets").mkdir()
    shutil.copy(ROOT / "datasets" / "sample.h5", tmp_path / "datasets")
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"`grd-offline (decompose datasets/sample.h5 .*?)`", text)
    arguments = [sys.executable, "-m", "grd_offline.cli", *command.split()]
    subprocess.run(arguments, cwd=tmp_path, check=True, capture_output=True)
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) >= 3
    for snippet in snippets:
        done = subprocess.run(
            [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{snippet}\n{done.stderr}"
