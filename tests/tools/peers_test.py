#!/usr/bin/python3
"""How tools/bench/peers measures PyTorch, with stand-ins for torch: nothing of it has to be installed."""
import argparse
import contextlib
import io
import json
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.normpath(os.path.join(HERE, "..", "..", "tools", "bench", "peers"))]

import torch_accuracy  # noqa: E402
import torch_bench  # noqa: E402
import torch_training  # noqa: E402


class Number(float):
    def __truediv__(self, other):
        return Number(float(self) / other)

    def item(self):
        return float(self)


class Vector(list):
    def __init__(self, values, dtype=None):
        super().__init__(map(Number, values))

    def tolist(self):
        return list(self)

    def item(self):
        return self[0].item()


class Torch(mock.MagicMock):
    __version__ = "none"
    tensor = Vector


class Clock:
    """Only operations take time: the first three synchronised ones 200 ms each, later ones 12, those of one rank 1."""

    def __init__(self):
        self.now, self.operations = 100.0, 0

    def operation(self, *_):
        self.operations += 1
        self.now += 0.2 if self.operations <= 3 else 0.012
        return mock.MagicMock()

    def operation_of_one_rank(self, *_):
        self.now += 0.001
        return mock.MagicMock()


class SyncBatchNormTest(unittest.TestCase):
    def cell(self, seconds):
        clock, torch = Clock(), Torch()
        torch.nn.BatchNorm1d.return_value.side_effect = clock.operation_of_one_rank
        distributed = mock.MagicMock(**{"get_rank.return_value": 0, "get_world_size.return_value": 1})
        arguments = argparse.Namespace(channels=[8], batches=[4], ranks=1, seconds=seconds)
        with mock.patch.object(torch_bench.time, "perf_counter", lambda: clock.now), \
                mock.patch.object(torch_training, "make_sync_batch_norm", lambda *_: clock.operation), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            torch_training.measure_sync_batch_norm(torch, distributed, arguments, 0)
        return clock, json.loads(out.getvalue())["cells"][0]

    def test_what_warms_up_does_not_count_though_it_takes_all_the_time(self):
        clock, cell = self.cell(seconds=0.4)
        self.assertEqual(cell["repetitions"], torch_bench.LEAST)
        self.assertEqual(clock.operations, 20 + torch_bench.LEAST)
        for quantile in ("us", "us_p10", "us_p90"):
            self.assertAlmostEqual(cell[quantile], 12e3)
        self.assertAlmostEqual(cell["batch_norm_us"], 1e3)

    def test_with_more_time_it_goes_on_until_the_median_is_stable(self):
        clock, cell = self.cell(seconds=4)
        self.assertEqual(cell["repetitions"], torch_bench.LEAST_FOR_STABILITY)
        self.assertEqual(clock.operations, 20 + torch_bench.LEAST_FOR_STABILITY)


class AccuracyTest(unittest.TestCase):
    def training(self, ranks):
        arguments = argparse.Namespace(seed=1, ranks=ranks, data="/nowhere", configuration={
            "model": {"name": "small_cnn"}, "optimizer": {}, "train": {"global_batch_size": 2}})
        with mock.patch.multiple(torch_accuracy, load_images=lambda *_: ([], []), make_optimizer=mock.DEFAULT,
                                 make_network=mock.DEFAULT):
            return torch_accuracy.Training(Torch(), mock.MagicMock(), arguments, 0)

    def test_running_statistics_travel_before_a_validation_and_not_in_a_step(self):
        training = self.training(ranks=2)
        parallel = training.torch.nn.parallel.DistributedDataParallel
        parallel.assert_called_once_with(mock.ANY, broadcast_buffers=False)
        training.network.module.buffers.return_value = ["mean", "variance"]
        training.torch.zeros.return_value = Vector([1, 3, 4])
        self.assertEqual(training.validate(), (0.25, 0.75))
        self.assertEqual(training.distributed.broadcast.call_args_list, [mock.call("mean", 0), mock.call("variance", 0)])

    def test_the_learning_rate_warms_up_as_in_dtrain(self):
        training = self.training(ranks=1)
        training.steps_per_epoch = 4
        training.options = {"optimizer": {"learning_rate": 2}, "schedule": {"name": "constant", "warmup_epochs": 1}}
        for step, rate in ((0, 0.02), (2, 1.01), (4, 2)):
            self.assertAlmostEqual(training.learning_rate(step), rate)

    def test_a_step_has_the_same_images_for_any_number_of_ranks(self):
        self.assertEqual([self.training(ranks).batch for ranks in (1, 2)], [2, 1])
        with self.assertRaisesRegex(SystemExit, "2 images cannot be shared equally by 3 ranks"):
            self.training(ranks=3)

    def test_a_rank_on_its_own_is_not_wrapped(self):
        self.training(ranks=1).torch.nn.parallel.DistributedDataParallel.assert_not_called()


if __name__ == "__main__":
    unittest.main()
