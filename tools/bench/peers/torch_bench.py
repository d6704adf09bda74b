#!/usr/bin/python3
"""Times torch.distributed over Gloo as dbench times ours: the same protocol (tools/bench/measure).

    torch_bench.py --ranks 4 allreduce 1000,10000 [--seconds 1] [--op avg]    (or another collective)
    torch_bench.py --ranks 4 barrier

The ranks are forked after torch is imported. Rank 0 prints one JSON object per line. A repetition: fresh
values, a barrier, and the slowest rank's duration of the operation from its own start.
"""
import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
import traceback

# By name: whether what all have together is divided among the ranks.
COLLECTIVES = {"allreduce": False, "broadcast": False, "reduce": False, "allgather": True, "reducescatter": True,
               "alltoall": True, "gather": True, "scatter": True}
LEAST, MOST, WARMUP, LEAST_FOR_STABILITY, TOLERANCE = 5, 20000, 3, 40, 0.01


def quantile(ascending, fraction):
    position = fraction * (len(ascending) - 1)
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (position - below)


def is_stable(values):
    """The median's 95 % confidence interval by order statistics is narrower than the tolerance."""
    ascending, n = sorted(values), len(values)
    half_width = 0.98 * math.sqrt(n)
    low, high = int(n / 2 - half_width), min(math.ceil(n / 2 + half_width), n - 1)
    return ascending[high] - ascending[low] <= TOLERANCE * statistics.median(ascending)


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5\n")
    except OSError:
        pass


def peak_mib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:"))


class Measurement:
    """Of each operation: durations, the peak memory of any rank, which is taken before the results are checked, and the
    greatest error."""

    def __init__(self, torch, distributed):
        self.torch, self.distributed = torch, distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def maximum(self, values):
        tensor = self.torch.tensor(values, dtype=self.torch.float64)
        self.distributed.all_reduce(tensor, op=self.distributed.ReduceOp.MAX)
        return tensor.tolist()

    def once(self, prepare, run, repetition):
        prepare(repetition)
        self.distributed.barrier()
        start = time.perf_counter()
        run()
        duration = time.perf_counter() - start
        self.distributed.barrier()  # who is ready early must not take a slower rank's core to prepare the next one
        return duration

    def repeat(self, seconds, prepare, run, warmup=WARMUP):
        start, repetition, durations = time.perf_counter(), 0, []
        for _ in range(warmup):
            self.once(prepare, run, repetition)
            repetition += 1
        round_length = LEAST
        while round_length > 0:
            fresh = []
            for _ in range(round_length):
                fresh.append(self.once(prepare, run, repetition))
                repetition += 1
            durations += self.maximum(fresh)
            used = self.maximum([time.perf_counter() - start])[0]
            if used >= seconds:
                break
            if len(durations) >= LEAST_FOR_STABILITY and used >= seconds / 4 and is_stable(durations):
                break
            affordable = int((seconds - used) / (used / (len(durations) + warmup))) + 1
            round_length = min(len(durations), affordable, MOST - len(durations))
        return durations, repetition - 1

    def values(self, count, rank, repetition):
        generator = self.torch.Generator().manual_seed(repetition * 1000 + rank)
        return self.torch.empty(count).uniform_(0.5, 1.5, generator=generator)

    def operation(self, name, data, result, parts, average):
        """What is timed: a function without arguments. `parts`: of what the root has, where that is divided."""
        distributed, root = self.distributed, self.rank == 0

        def reduce_all():
            distributed.all_reduce(data)
            if average:  # which not every version of Gloo can
                data.div_(self.size)

        return {"allreduce": reduce_all,
                "broadcast": lambda: distributed.broadcast(data, 0),
                "reduce": lambda: distributed.reduce(data, 0),
                "allgather": lambda: distributed.all_gather_into_tensor(result, data),
                "reducescatter": lambda: distributed.reduce_scatter_tensor(result, data),
                "alltoall": lambda: distributed.all_to_all_single(result, data),
                "gather": lambda: distributed.gather(data, parts if root else None, 0),
                "scatter": lambda: distributed.scatter(result, parts if root else None, 0)}[name]

    def expected(self, name, count, repetition, average):
        """What this rank has in the end, in double; None where it has nothing."""
        torch, part = self.torch, count // self.size
        if self.rank != 0 and name in ("reduce", "gather"):
            return None
        own = slice(self.rank * part, (self.rank + 1) * part)

        def values(rank, length=count):
            return self.values(length, rank, repetition).double()

        if name in ("allreduce", "reduce", "reducescatter"):
            total = sum((values(rank) for rank in range(1, self.size)), values(0))
            return (total / self.size if average else total)[own if name == "reducescatter" else slice(None)]
        if name == "broadcast":
            return values(0)
        if name == "scatter":
            return values(0)[own]
        if name == "alltoall":
            return torch.cat([values(rank)[own] for rank in range(self.size)])
        return torch.cat([values(rank, part) for rank in range(self.size)])

    def collective(self, name, count, seconds, average):
        torch, part = self.torch, count // self.size
        data = torch.empty(part if name in ("allgather", "gather") else count)
        result = torch.empty(part if name in ("reducescatter", "scatter") else count)
        in_place = name in ("allreduce", "broadcast", "reduce")
        if in_place:
            result = data
        generator = torch.Generator()

        def prepare(repetition):
            if name == "broadcast" and self.rank != 0:
                data.zero_()
                return
            generator.manual_seed(repetition * 1000 + self.rank)
            data.uniform_(0.5, 1.5, generator=generator)
            if not in_place:
                result.zero_()

        whole = {"gather": result, "scatter": data}.get(name)
        parts = None if whole is None else list(whole.view(self.size, -1))
        durations, last = self.repeat(seconds, prepare, self.operation(name, data, result, parts, average))
        peak = self.maximum([peak_mib()])[0]
        exact = self.expected(name, count, last, average)
        error = ((result - exact).abs() / exact).max().item() if exact is not None and count else 0.0
        return durations, peak, self.maximum([error])[0]

    def barrier(self, seconds):
        durations, _ = self.repeat(seconds, lambda _: None, self.distributed.barrier)
        return durations, self.maximum([peak_mib()])[0], 0.0


def run_rank(arguments, rank, meeting_place):
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method="file://" + meeting_place, rank=rank,
                                   world_size=arguments.ranks)
    measurement = Measurement(torch, distributed)
    for count in [0] if arguments.operation == "barrier" else arguments.counts:
        reset_peak()
        if COLLECTIVES.get(arguments.operation):  # as the others round it
            count = max(count // arguments.ranks, 1) * arguments.ranks
        if arguments.operation in COLLECTIVES:
            durations, peak, error = measurement.collective(arguments.operation, count, arguments.seconds,
                                                            arguments.op == "avg")
        else:
            durations, peak, error = measurement.barrier(arguments.seconds)
        if rank == 0:
            ascending = sorted(value * 1e6 for value in durations)
            print(json.dumps({
                "operation": arguments.operation, "ranks": arguments.ranks, "count": count, "bytes": count * 4,
                "us": round(quantile(ascending, 0.5), 3), "us_p10": round(quantile(ascending, 0.1), 3),
                "us_p90": round(quantile(ascending, 0.9), 3), "repetitions": len(ascending),
                "error": float(f"{error:.3g}"), "peak_mib": round(peak, 1)}), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


def run_forked(ranks, run_rank):
    """Runs run_rank(rank, path of the file in which ranks meet) in a child each; returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run_rank(rank, os.path.join(folder, "meeting"))
                    code = 0
                except Exception:  # a fork must not unwind into main()
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
    return 1 if any(codes) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operation", choices=[*COLLECTIVES, "barrier"])
    parser.add_argument("counts", nargs="?", default="1000", help="elements, separated by commas")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1.0, help="per count")
    parser.add_argument("--op", choices=["sum", "avg"], default="sum", help="of allreduce")
    arguments = parser.parse_args()
    arguments.counts = [int(count) for count in arguments.counts.split(",")]

    import torch  # noqa: F401  (once, before the ranks are forked)
    import torch.distributed  # noqa: F401

    return run_forked(arguments.ranks, lambda rank, meeting: run_rank(arguments, rank, meeting))


if __name__ == "__main__":
    sys.exit(main())
