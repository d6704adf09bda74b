#!/usr/bin/python3
"""Trains a network on CIFAR-100 in PyTorch as a configuration of dtrain says, and tells its accuracy by epochs.

    torch_accuracy.py CONFIG.json --data DIR [--epochs 4] [--seed 1] [--ranks 2] [--threads 1]

DistributedDataParallel over Gloo on CPU in channels_last, the quicker layout in every cell of compare_training's, plain
batch normalisation (nn.SyncBatchNorm refuses CPU tensors), whose running statistics travel before a validation only, the
configuration's optimizer, schedule, crops and flips; what it does not know is refused. Validation is by scatter: each
rank evaluates its share of the test images, and the sums are added. Images that do not fill a step are left out of an
epoch. Rank 0 prints a JSON line for each epoch and one of the whole run.
"""
import argparse
import contextlib
import json
import math
import os
import sys
import time

from torch_bench import peak_mib, run_forked
from torch_training import make_network, make_optimizer, read_configuration

MEAN, STD = [0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]
RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, pixels
KNOWN = {"data": {"set", "crop_padding", "flip"}, "model": {"name"},
         "optimizer": {"name", "learning_rate", "momentum", "nesterov", "weight_decay", "decay_weights_only"},
         "schedule": {"name", "warmup_epochs", "warmup_start_factor"},
         "train": {"epochs", "global_batch_size", "accumulation_steps", "sync_batch_norm"}}


def read_known(path):
    configuration = read_configuration(path)
    for part, values in configuration.items():
        for key in values:
            if key not in KNOWN.get(part, ()):
                sys.exit(f"torch_accuracy: {path}: {part}.{key} is not known here")
    schedule = configuration.setdefault("schedule", {"name": "constant"})
    if configuration["optimizer"]["name"] != "sgd" or schedule["name"] not in ("constant", "cosine"):
        sys.exit(f"torch_accuracy: {path}: only SGD with a constant or cosine learning rate is known here")
    return configuration


def load_images(torch, path):
    """(bytes [n, 3, 32, 32], labels [n])"""
    with open(path, "rb") as file:
        records = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(-1, RECORD)
    return records[:, 2:].reshape(-1, 3, 32, 32), records[:, 1].long()


def normalise(torch, images):
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    return ((images.float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


def augment(torch, images, options, generator):
    """Crops and flips of bytes, an image at a time as in dtrain."""
    padding = options.get("crop_padding", 0)
    if padding:
        padded = torch.nn.functional.pad(images, [padding] * 4)
        offsets = torch.randint(0, 2 * padding + 1, (len(images), 2), generator=generator)
        rows = (offsets[:, :1] + torch.arange(32)).view(-1, 1, 32, 1)
        columns = (offsets[:, 1:] + torch.arange(32)).view(-1, 1, 1, 32)
        which = torch.arange(len(images)).view(-1, 1, 1, 1)
        images = padded[which, torch.arange(3).view(1, 3, 1, 1), rows, columns]
    if options.get("flip"):
        mirrored = torch.rand(len(images), generator=generator) < 0.5
        images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(3), images)
    return images


class Training:
    def __init__(self, torch, distributed, arguments, rank):
        self.torch, self.distributed, self.arguments, self.rank = torch, distributed, arguments, rank
        self.options = arguments.configuration
        torch.manual_seed(arguments.seed)
        train = self.options["train"]
        self.accumulation = train.get("accumulation_steps", 1)
        self.batch, rest = divmod(train["global_batch_size"], self.accumulation * arguments.ranks)
        if rest:
            sys.exit(f"torch_accuracy: {train['global_batch_size']} images cannot be shared equally"
                     f" by {arguments.ranks} ranks and {self.accumulation} accumulation steps")
        network = make_network(torch, self.options["model"]["name"]).to(memory_format=torch.channels_last)
        self.network = network
        if arguments.ranks > 1:  # ours sends no running statistics in a step either
            self.network = torch.nn.parallel.DistributedDataParallel(network, broadcast_buffers=False)
        self.optimizer = make_optimizer(torch, network, self.options["optimizer"])
        self.images, self.labels = load_images(torch, os.path.join(arguments.data, "train.bin"))
        self.test = [part[rank::arguments.ranks] for part in load_images(torch, os.path.join(arguments.data, "test.bin"))]
        self.generator = torch.Generator().manual_seed(arguments.seed * 1000 + rank)
        self.steps_per_epoch = len(self.images) // (self.batch * self.accumulation * arguments.ranks)

    def learning_rate(self, step):
        schedule, epoch = self.options["schedule"], step / self.steps_per_epoch
        warmup = schedule.get("warmup_epochs", 0)
        start = schedule.get("warmup_start_factor", 0.01)  # the default of dtrain
        factor = start + (1 - start) * min(1.0, epoch / warmup) if warmup else 1.0
        if schedule["name"] == "cosine" and epoch >= warmup:
            factor = 0.5 + 0.5 * math.cos(math.pi * (epoch - warmup) / max(self.arguments.epochs - warmup, 1e-9))
        return self.options["optimizer"]["learning_rate"] * factor

    def micro_batches(self, epoch):
        """Of this rank, in order: steps of consecutive blocks of a permutation that all ranks have."""
        order = self.torch.randperm(len(self.images), generator=self.torch.Generator().manual_seed(
            self.arguments.seed * 7919 + epoch))
        ranks = self.arguments.ranks
        for block in range(self.steps_per_epoch * self.accumulation):
            begin = (block * ranks + self.rank) * self.batch
            mine = order[begin:begin + self.batch]
            images = augment(self.torch, self.images[mine], self.options["data"], self.generator)
            yield normalise(self.torch, images), self.labels[mine]

    def train_epoch(self, epoch):
        """(seconds, mean loss of this rank)"""
        self.network.train()
        begun, losses, batches = time.perf_counter(), [], self.micro_batches(epoch)
        for step in range(self.steps_per_epoch):
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate(epoch * self.steps_per_epoch + step)
            self.optimizer.zero_grad()
            for number in range(self.accumulation):
                images, labels = next(batches)
                last = number + 1 == self.accumulation
                with contextlib.nullcontext() if last or self.arguments.ranks == 1 else self.network.no_sync():
                    loss = self.torch.nn.functional.cross_entropy(self.network(images), labels)
                    (loss / self.accumulation).backward()
                losses.append(loss.detach())
            self.optimizer.step()
        return time.perf_counter() - begun, self.torch.stack(losses).mean().item()

    def validate(self):
        """(top-1, loss) over all ranks' shares, by the running statistics of rank 0"""
        self.network.eval()
        sums = self.torch.zeros(3, dtype=self.torch.float64)  # right, loss, images
        module = getattr(self.network, "module", self.network)
        for statistic in module.buffers():
            self.distributed.broadcast(statistic, 0)
        with self.torch.no_grad():
            for begin in range(0, len(self.test[1]), 250):
                images, labels = (part[begin:begin + 250] for part in self.test)
                scores = module(normalise(self.torch, images))
                loss = self.torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
                sums += self.torch.tensor([(scores.argmax(1) == labels).sum().item(), loss.item(), len(labels)])
        self.distributed.all_reduce(sums)
        return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def run_rank(arguments, rank, meeting_place):
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(arguments.threads)
    distributed.init_process_group("gloo", init_method="file://" + meeting_place, rank=rank,
                                   world_size=arguments.ranks)
    training = Training(torch, distributed, arguments, rank)
    for epoch in range(arguments.epochs):
        seconds, loss = training.train_epoch(epoch)
        top1, validation_loss = training.validate()
        if rank == 0:
            print(json.dumps({"event": "epoch", "epoch": epoch + 1, "seconds": seconds, "loss": loss, "top1": top1,
                              "validation_loss": validation_loss}), flush=True)
    peak = torch.tensor([peak_mib()], dtype=torch.float64)
    distributed.all_reduce(peak, op=distributed.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"event": "summary", "peak_mib": peak.item(), "torch": torch.__version__}), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configuration")
    parser.add_argument("--data", required=True, help="folder of train.bin and test.bin")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    arguments.configuration = read_known(arguments.configuration)
    return run_forked(arguments.ranks, lambda rank, meeting: run_rank(arguments, rank, meeting))


if __name__ == "__main__":
    sys.exit(main())
