#!/usr/bin/python3
"""Times training on GPUs in PyTorch as dbench syncbn, train and device --device cuda time ours.

    torch_gpu.py syncbn --ranks 2 --channels 128,256 --batches 32,64 [--images 512x64x32,...] [--bf16] [--ddp]
    torch_gpu.py train --batch 512 [--ranks 2] [--compile] [--precision bf16] [--warmup 20] [--steps 100]
    torch_gpu.py device

`syncbn`: torch.nn.SyncBatchNorm, forward and backward, by CUDA events, the slowest rank's median after a barrier, and the
most memory that was allocated beyond what there was before; alone, or with --ddp under DistributedDataParallel, which
besides broadcasts the running statistics and sums the gradients of weight and bias. `train`: ResNet-18 in
channels_last under autocast, mean time of ten steps at a time, behind each of which the host waits. Ranks that have a GPU
each talk by NCCL; ranks that share one by Gloo, as NCCL refuses that. Rank 0 prints JSON. Without torch or a GPU it says
why in a line and ends with exit code 3.
"""
import argparse
import json
import sys
import time

from torch_bench import is_stable, quantile, run_forked
from torch_training import make_network

UNAVAILABLE = 3
GROUP = 10  # steps between two waits of the host


def why_not():
    """Why nothing can be measured here; empty if something can. In a child: a fork must not inherit CUDA."""
    import os

    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            import torch
            reason = "" if torch.cuda.is_available() else "torch finds no CUDA device"
        except ImportError:
            reason = "this Python has no torch"
        except Exception as error:  # libraries that are not there, drivers that are too old
            reason = f"torch cannot be used: {' '.join(str(error).split())}"
        os.write(writable, reason.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        reason = pipe.read()
    os.waitpid(child, 0)
    return reason


class Ranks:
    """The device of this rank, and what all ranks agree on."""

    def __init__(self, torch, distributed, arguments, rank, meeting_place):
        self.torch, self.distributed, self.rank = torch, distributed, rank
        devices = torch.cuda.device_count()
        self.backend = "nccl" if devices >= arguments.ranks else "gloo"
        self.device = torch.device("cuda", rank % devices)
        torch.cuda.set_device(self.device)
        distributed.init_process_group(self.backend, init_method="file://" + meeting_place, rank=rank,
                                       world_size=arguments.ranks)
        # Barriers and maxima go over the host, as ours do, whatever the measured collectives use.
        self.host = distributed.new_group(backend="gloo")

    def barrier(self):
        self.distributed.barrier(group=self.host)

    def maximum(self, values):
        tensor = self.torch.tensor(values, dtype=self.torch.float64)
        self.distributed.all_reduce(tensor, op=self.distributed.ReduceOp.MAX, group=self.host)
        return tensor.tolist()


def timed(torch, prepare, run):
    """Seconds between two events around `run`."""
    prepare()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def repeat(ranks, seconds, run, prepare=lambda: None, warmup=20):
    """Durations of the slowest rank, ascending, each from a barrier, until the median is stable or the time is over."""
    for _ in range(warmup):
        ranks.barrier()
        timed(ranks.torch, prepare, run)
    durations, start = [], time.perf_counter()
    while True:
        fresh = []
        for _ in range(20):
            ranks.barrier()
            fresh.append(timed(ranks.torch, prepare, run))
        durations += ranks.maximum(fresh)
        if ranks.maximum([time.perf_counter() - start])[0] >= seconds or (len(durations) >= 60 and is_stable(durations)):
            return sorted(durations)


def measure_cell(ranks, arguments, shape):
    """`shape` is torch's, channels second."""
    torch = ranks.torch
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    dtype = torch.bfloat16 if arguments.bf16 else torch.float32
    layout = torch.channels_last if len(shape) == 4 else torch.contiguous_format
    layer = torch.nn.SyncBatchNorm(shape[1]).to(ranks.device)
    if arguments.ddp and arguments.ranks > 1:
        layer = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[ranks.device])
    x = torch.randn(shape, device=ranks.device).to(dtype).to(memory_format=layout).requires_grad_()
    gradient = torch.randn(shape, device=ranks.device).to(dtype).to(memory_format=layout)

    def forget_gradients():  # as set_to_none does: there is nothing that backward would have to add to
        for tensor in (x, *layer.parameters()):
            tensor.grad = None

    durations = repeat(ranks, arguments.seconds, lambda: layer(x).backward(gradient), forget_gradients)
    peak = ranks.maximum([(torch.cuda.max_memory_allocated() - before) / 2**20])[0]
    return {"rows": shape[0], "channels": shape[1],
            "shape": [shape[0], *shape[2:], shape[1]],
            "us": quantile(durations, 0.5) * 1e6, "us_p10": quantile(durations, 0.1) * 1e6,
            "us_p90": quantile(durations, 0.9) * 1e6, "peak_mib": peak, "repetitions": len(durations)}


def sync_batch_norm(ranks, arguments):
    shapes = [(batch, channels) for channels in arguments.channels for batch in arguments.batches]
    shapes += [(count, channels, side, side) for count, channels, side in arguments.images]
    return {"cells": [measure_cell(ranks, arguments, shape) for shape in shapes]}


def train(ranks, arguments):
    torch = ranks.torch
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    network = make_network(torch, "resnet18").to(ranks.device).to(memory_format=torch.channels_last)
    if arguments.ranks > 1:
        network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)
        network = torch.nn.parallel.DistributedDataParallel(network, device_ids=[ranks.device], broadcast_buffers=False)
    forward = torch.compile(network, mode=arguments.compile) if arguments.compile else network
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    images = torch.randn(arguments.batch, 3, 32, 32, device=ranks.device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (arguments.batch,), device=ranks.device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    def group():
        for _ in range(GROUP):
            loss = step()
        loss.item()

    torch.cuda.reset_peak_memory_stats()
    for _ in range(-(-arguments.warmup // GROUP)):
        group()
    durations = []
    for _ in range(-(-arguments.steps // GROUP)):
        start = time.perf_counter()
        group()
        durations.append((time.perf_counter() - start) / GROUP)
    ascending = sorted(ranks.maximum(durations))
    total = sum(ascending) * GROUP
    return {"images_per_step": arguments.batch * arguments.ranks, "precision": arguments.precision,
            "compile": arguments.compile, "images_per_second": arguments.batch * arguments.ranks * len(ascending) * GROUP / total,
            "ms_p10": quantile(ascending, 0.1) * 1e3, "ms": quantile(ascending, 0.5) * 1e3,
            "ms_p90": quantile(ascending, 0.9) * 1e3, "tensor_mib": torch.cuda.max_memory_allocated() / 2**20}


def device_limits(ranks, arguments):
    torch = ranks.torch
    source = torch.zeros(512 << 20, dtype=torch.uint8, device=ranks.device)
    target = torch.empty_like(source)
    copy = quantile(repeat(ranks, arguments.seconds, lambda: target.copy_(source)), 0.5)
    cells = [{"what": "copy", "how": "memcpy", "unit": "GB/s", "rate": 2 * source.numel() / copy / 1e9}]
    side = 8192
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = (torch.rand(side, side, device=ranks.device).mul_(2).sub_(1).to(dtype) for _ in range(2))
        seconds = quantile(repeat(ranks, arguments.seconds, lambda: a @ b), 0.5)
        cells.append({"what": "matmul", "how": name, "unit": "GFLOP/s", "rate": 2 * side**3 / seconds / 1e9})
    return {"cells": cells}


def run_rank(arguments, rank, meeting_place):
    import torch
    import torch.distributed as distributed

    ranks = Ranks(torch, distributed, arguments, rank, meeting_place)
    measure = {"syncbn": sync_batch_norm, "train": train, "device": device_limits}[arguments.subject]
    result = {"ranks": arguments.ranks, "backend": ranks.backend, "device": torch.cuda.get_device_name(),
              "torch": torch.__version__, **measure(ranks, arguments)}
    if rank == 0:
        print(json.dumps(result), flush=True)
    ranks.barrier()
    distributed.destroy_process_group()


def parse_arguments():
    def numbers(text):
        return [int(word) for word in text.split(",")] if text else []

    def images(text):
        return [tuple(int(word) for word in cell.split("x")) for cell in text.split(",")] if text else []

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("subject", choices=["syncbn", "train", "device"])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--channels", type=numbers, default=[128, 256, 512, 1024])
    parser.add_argument("--batches", type=numbers, default=[32, 64])
    parser.add_argument("--images", type=images, default=[], help="COUNTxCHANNELSxSIDE,...")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--ddp", action="store_true", help="of syncbn")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=512, help="of a rank")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--compile", choices=["default", "reduce-overhead"],
                        help="torch.compile in that mode; reduce-overhead repeats CUDA graphs of forward and backward")
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    reason = why_not()
    if reason:
        print(f"torch_gpu.py: {reason}", file=sys.stderr)
        return UNAVAILABLE
    # Forked before torch is imported: CUDA does not survive a fork.
    return run_forked(arguments.ranks, lambda rank, meeting: run_rank(arguments, rank, meeting))


if __name__ == "__main__":
    sys.exit(main())
