#!/usr/bin/python3
"""Times training in PyTorch as dbench train and dbench syncbn time ours.

    torch_training.py train resnet18 --ranks 2 --threads 1 --batch 64 [--accumulation 2] [--precision bf16]
                                     [--channels-last] [--compile] [--warmup 3] [--steps 20]
    torch_training.py syncbn --ranks 2 --channels 128,256 --batches 32,64

`train`: the same network, batch and optimizer as the configuration of dtrain, DistributedDataParallel over Gloo, plain
batch normalisation (nn.SyncBatchNorm refuses CPU tensors), on a batch that stays in memory. `syncbn`: synchronised batch
normalisation written in Python on torch.distributed, one all-reduce each way, and with one rank PyTorch's own
BatchNorm1d. Rank 0 prints JSON.
"""
import argparse
import contextlib
import json
import os
import re
import sys
import time

from torch_bench import Measurement, peak_mib, quantile, reset_peak, run_forked


WARMUP = 20  # of syncbn, as ours
CONFIGURATIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "configs")


def resident_mib():
    """Of a process that has imported torch and done nothing yet."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


def make_network(torch, name):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.downsample = nn.Identity()
            if stride != 1 or inputs != outputs:
                self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                                nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = torch.relu_(self.bn1(self.conv1(x)))
            return torch.relu_(self.bn2(self.conv2(y)) + self.downsample(x))

    if name == "small_cnn":
        return nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(True), nn.Conv2d(32, 32, 3), nn.ReLU(True), nn.MaxPool2d(2),
                             nn.Dropout(0.25), nn.Flatten(), nn.Linear(6272, 128), nn.BatchNorm1d(128, affine=False),
                             nn.ReLU(True), nn.Dropout(0.5), nn.Linear(128, 100))
    stages, blocks = {"resnet18": ((64, 128, 256, 512), 2), "resnet20": ((16, 32, 64), 3)}[name]
    inputs = stages[0]
    layers = [nn.Conv2d(3, inputs, 3, 1, 1, bias=False), nn.BatchNorm2d(inputs), nn.ReLU(True)]
    for outputs in stages:
        stride = 1 if outputs == stages[0] else 2
        layers += [Block(inputs, outputs, stride), *(Block(outputs, outputs, 1) for _ in range(blocks - 1))]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 100))


def read_configuration(path):
    """What a configuration of dtrain's says; it may have lines of comments."""
    with open(path, encoding="utf-8") as file:
        return json.loads(re.sub(r"^\s*//.*$", "", file.read(), flags=re.MULTILINE))


def make_optimizer(torch, network, options):
    """SGD with the options that a configuration of dtrain's has for it."""
    decay, weights_only = options.get("weight_decay", 0), options.get("decay_weights_only", False)
    groups = {True: [], False: []}
    for parameter in network.parameters():
        groups[parameter.dim() > 1 or not weights_only].append(parameter)
    return torch.optim.SGD(
        [{"params": groups[decays], "weight_decay": decay if decays else 0} for decays in (True, False) if groups[decays]],
        lr=options["learning_rate"], momentum=options.get("momentum", 0.9), nesterov=options.get("nesterov", False))


class Step:
    """One optimizer step of data-parallel training."""

    def __init__(self, torch, arguments):
        self.torch, self.arguments = torch, arguments
        torch.manual_seed(1)
        layout = torch.channels_last if arguments.channels_last else torch.contiguous_format
        network = make_network(torch, arguments.network).to(memory_format=layout)
        self.network = network
        if arguments.ranks > 1:  # ours sends no running statistics in a step either
            self.network = torch.nn.parallel.DistributedDataParallel(network, broadcast_buffers=False)
        self.forward = torch.compile(self.network) if arguments.compile else self.network
        configuration = read_configuration(os.path.join(CONFIGURATIONS, f"cifar100_{arguments.network}.json"))
        self.optimizer = make_optimizer(torch, network, configuration["optimizer"])
        self.images = torch.randn(arguments.batch, 3, 32, 32).to(memory_format=layout)
        self.labels = torch.randint(0, 100, (arguments.batch,))

    def micro_batch(self):
        torch = self.torch
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.arguments.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(self.forward(self.images), self.labels)
        (loss / self.arguments.accumulation).backward()
        return loss

    def run(self):
        self.optimizer.zero_grad()
        for micro_batch in range(self.arguments.accumulation):
            silent = micro_batch + 1 < self.arguments.accumulation and self.arguments.ranks > 1
            with self.network.no_sync() if silent else contextlib.nullcontext():
                loss = self.micro_batch()
        self.optimizer.step()
        return loss.item()


def train(torch, distributed, arguments, rank):
    idle = resident_mib()
    reset_peak()
    step = Step(torch, arguments)
    for _ in range(arguments.warmup):
        step.run()
    durations = []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        step.run()
        durations.append(time.perf_counter() - start)
    worst = torch.tensor([peak_mib(), sum(durations), idle], dtype=torch.float64)
    distributed.all_reduce(worst, op=distributed.ReduceOp.MAX)
    ascending, images = sorted(durations), arguments.batch * arguments.accumulation * arguments.ranks
    if rank == 0:
        print(json.dumps({
            "network": arguments.network, "precision": arguments.precision, "ranks": arguments.ranks,
            "channels_last": arguments.channels_last, "compile": arguments.compile, "images_per_step": images,
            "images_per_second": images * len(durations) / worst[1].item(),
            "ms_p10": quantile(ascending, 0.1) * 1e3, "ms": quantile(ascending, 0.5) * 1e3,
            "ms_p90": quantile(ascending, 0.9) * 1e3, "peak_mib": worst[0].item(),
            "idle_mib": worst[2].item(),
            "torch": torch.__version__}), flush=True)


def make_sync_batch_norm(torch, distributed):
    class SyncBatchNorm(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight, bias, running_mean, running_var):
            count = torch.full((1,), float(x.shape[0]))
            packed = torch.cat([count, x.sum(0), (x * x).sum(0)])
            distributed.all_reduce(packed)
            total, sums, squares = packed[0], *packed[1:].chunk(2)
            mean = sums / total
            variance = squares / total - mean * mean
            inverse = torch.rsqrt(variance + 1e-5)
            running_mean.lerp_(mean, 0.1)
            running_var.lerp_(variance * total / (total - 1), 0.1)
            normalised = (x - mean) * inverse
            context.save_for_backward(normalised, weight, inverse, total)
            return normalised * weight + bias

        @staticmethod
        def backward(context, gradient):
            normalised, weight, inverse, total = context.saved_tensors
            bias_gradient, weight_gradient = gradient.sum(0), (gradient * normalised).sum(0)
            packed = torch.cat([bias_gradient, weight_gradient])
            distributed.all_reduce(packed)
            first, second = (packed / total).chunk(2)
            return (gradient - first - normalised * second) * (weight * inverse), weight_gradient, bias_gradient, None, None

    return SyncBatchNorm.apply


def measure_sync_batch_norm(torch, distributed, arguments, rank):
    synchronised = make_sync_batch_norm(torch, distributed)
    measurement = Measurement(torch, distributed)
    cells = []
    for channels in arguments.channels:
        for batch in arguments.batches:
            x = torch.empty(batch, channels, requires_grad=True)
            gradient = torch.empty(batch, channels)
            own = torch.nn.BatchNorm1d(channels)
            state = [own.weight, own.bias, own.running_mean, own.running_var]

            def prepare(_):
                with torch.no_grad():
                    x.normal_()
                    gradient.normal_()
                x.grad = None

            def run_synchronised():
                synchronised(x, *state).backward(gradient)

            def run_own():
                own(x).backward(gradient)

            reset_peak()
            together = sorted(measurement.repeat(arguments.seconds, prepare, run_synchronised, WARMUP)[0])
            peak = torch.tensor([peak_mib()], dtype=torch.float64)
            distributed.all_reduce(peak, op=distributed.ReduceOp.MAX)
            alone = sorted(measurement.repeat(arguments.seconds, prepare, run_own, WARMUP)[0])
            cells.append({"rows": batch, "channels": channels, "us": quantile(together, 0.5) * 1e6,
                          "us_p10": quantile(together, 0.1) * 1e6, "us_p90": quantile(together, 0.9) * 1e6,
                          "batch_norm_us": quantile(alone, 0.5) * 1e6, "peak_mib": peak.item(),
                          "repetitions": len(together)})
    if rank == 0:
        print(json.dumps({"ranks": arguments.ranks, "cells": cells, "torch": torch.__version__}), flush=True)


def run_rank(arguments, rank, meeting_place):
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(arguments.threads)
    distributed.init_process_group("gloo", init_method="file://" + meeting_place, rank=rank,
                                   world_size=arguments.ranks)
    {"train": train, "syncbn": measure_sync_batch_norm}[arguments.subject](torch, distributed, arguments, rank)
    distributed.barrier()
    distributed.destroy_process_group()


def parse_arguments():
    def numbers(text):
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subject", choices=["train", "syncbn"])
    parser.add_argument("network", nargs="?", choices=["resnet18", "resnet20", "small_cnn"], default="resnet18")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64, help="of a rank's micro-batch")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--channels", type=numbers, default=[128, 256, 512, 1024])
    parser.add_argument("--batches", type=numbers, default=[32, 64])
    parser.add_argument("--seconds", type=float, default=0.5)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    # Forked before torch is imported, so that every rank's memory is its own.
    return run_forked(arguments.ranks, lambda rank, meeting: run_rank(arguments, rank, meeting))


if __name__ == "__main__":
    sys.exit(main())
