"""What several tests of sweeps use."""

import forked
import pytest


@pytest.fixture(scope="session")
def quick_program(tmp_path_factory):
    """For jobs: a program that starts at once, and trains small networks."""
    folder = tmp_path_factory.mktemp("commands") / "bin"
    forked.write_command(folder)
    return (str(folder / "grd-offline"),)
