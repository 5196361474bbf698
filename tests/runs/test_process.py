"""What a training run changes in its process."""

import pytest
import torch

from grd_offline.core.threads import divide_cores
from grd_offline.learning.runs.process import prepare_process
from grd_offline.learning.settings import DISCRETE, OfflineSettings, OnlineSettings


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    torch.set_flush_denormal(False)


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        (OnlineSettings("CartPole-v1", **DISCRETE), 1),
        (OnlineSettings("Hopper-v5"), 2),
        (OfflineSettings(), 2),
    ],
)
def test_small_networks_train_in_one_thread(settings, threads, two_threads):
    prepare_process("cpu", batch=settings.batch, hidden=settings.hidden)
    assert torch.get_num_threads() == threads


def test_a_graphics_card_needs_one_thread(two_threads):
    before = torch.get_float32_matmul_precision()
    prepare_process("cuda", batch=256, hidden=(256, 256))
    assert torch.get_num_threads() == 1
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("cores", "members", "workers"),
    [(1, 0, 1), (2, 1, 2), (2, 3, 3), (2, 20, 4), (16, 10, 15), (16, 20, 20), (16, 50, 30)],
)
def test_members_have_a_worker_each_up_to_two_for_each_core(cores, members, workers):
    assert divide_cores(cores, members) == workers
