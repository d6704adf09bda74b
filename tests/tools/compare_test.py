#!/usr/bin/python3
"""The parts of tools/bench/compare and its tools that do not need to measure: with scripts in place of compilers."""
import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.normpath(os.path.join(HERE, "..", "..", "tools", "bench"))
sys.path[:0] = [BENCH]

from compare import contenders, launchers, plots, processes, rounds, style, tables  # noqa: E402

# Of a compiler's words, the one behind -o is the program.
COMPILES = 'while [ "$1" != -o ]; do shift; done; echo made >"$2"'
FAILS = "echo 'mpi_bench.cc:1:2: error: no such thing' >&2; echo 'more of it' >&2; exit 1"


class DriversTest(unittest.TestCase):
    """The programs' folder is one of fakes, and so is PATH."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.path = os.path.join(self.folder, "path")
        os.makedirs(os.path.join(self.folder, "peers"))
        os.mkdir(self.path)
        for tool in ("dirname", "find", "mkdir", "mv", "rm"):
            os.symlink(shutil.which(tool), os.path.join(self.path, tool))
        for mpi in ("openmpi", "mpich"):
            self.script("mpirun." + mpi, "")

    def script(self, name, text):
        path = os.path.join(self.path, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)

    def driver(self, mpi):
        return os.path.join(self.folder, "peers", "mpi_bench." + mpi)

    def old_driver(self, mpi):
        with open(self.driver(mpi), "w", encoding="ascii") as file:
            file.write("old")
        os.utime(self.driver(mpi), (1, 1))

    def build(self):
        """What is missing of Open MPI and of MPICH."""
        with mock.patch.dict(os.environ, {"PATH": self.path}):
            contenders.build_drivers(self.folder)
            return contenders.OpenMpi(self.folder, "shm").missing(), contenders.Mpich(self.folder).missing()

    def test_a_driver_that_does_not_compile_keeps_no_other_from_it_and_leaves_no_old_one(self):
        self.script("mpicxx.openmpi", FAILS)
        self.script("mpicxx.mpich", COMPILES)
        self.old_driver("openmpi")
        self.old_driver("mpich")
        self.assertEqual(self.build(), ("its driver does not build: mpi_bench.cc:1:2: error: no such thing", None))
        self.assertEqual(os.listdir(os.path.join(self.folder, "peers")), ["mpi_bench.mpich"])
        with open(self.driver("mpich"), encoding="ascii") as file:
            self.assertEqual(file.read(), "made\n")
        self.assertIn("mpi_bench.openmpi: mpicxx.openmpi failed", contenders.BUILD_ERRORS)

    def test_what_is_up_to_date_needs_no_compiler_and_what_is_not_says_which(self):
        self.old_driver("openmpi")
        self.script("mpicxx.mpich", COMPILES)
        self.build()
        os.remove(os.path.join(self.path, "mpicxx.mpich"))
        self.assertEqual(self.build(), ("its driver does not build: no mpicxx.openmpi: install libopenmpi-dev", None))
        self.assertFalse(os.path.exists(self.driver("openmpi")))


# The signal comes when the command runs, and before this program has got hold of it.
ENDED_WHILE_STARTING = """
import os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
from compare import processes

class Popen(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

processes.subprocess.Popen = Popen
processes.end_on_signals()
processes.run_whole(["sleep", "600"], 60, {})
"""


class ProcessesTest(unittest.TestCase):
    def test_a_command_that_is_just_being_started_ends_with_this_program_too(self):
        done = subprocess.run([sys.executable, "-c", ENDED_WHILE_STARTING, BENCH], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 128 + 15, done.stderr)
        self.assertFalse(os.path.exists(f"/proc/{int(done.stdout)}"))


    def test_of_what_a_command_says_the_line_that_tells_is_kept(self):
        others = "dlaunch: the other ranks: 1 ended by SIGTERM (collateral)\n"
        failed = "dlaunch: rank 0 (pid 7 on here) failed with exit code 3 after 0.02 s\n"
        for errors, expected in (
                ("", ""), ("first\nlast\n", "last"), (failed + others, failed.strip()),
                ("[rank 0] dtrain: a.bin: none\n" + failed + "dlaunch: probable cause: dtrain: a.bin: none\n" + others,
                 "dtrain: a.bin: none"),
                (failed + "dlaunch: its last lines on stderr:\n  | one\n  | dbench: out of memory\n" + others,
                 "dbench: out of memory")):
            self.assertEqual(processes.telling_line(errors), expected)


class RunsTest(unittest.TestCase):
    def run_of(self, number, settled, **others):
        return {"contender": "dlaunch", "operation": "allreduce", "ranks": 2, "round": number, "cells": [], "settled": settled,
                "flag_ns": [1, 1], **others}

    def test_a_settled_round_that_failed_does_not_put_aside_what_others_gave(self):
        good = self.run_of(0, False, cells=[{"count": 1, "us": 1.0}])
        self.assertEqual(tables.usable([good, self.run_of(1, True, failure="no")])[0], good)

    def test_who_cannot_run_here_is_told_beside_who_failed(self):
        absent = self.run_of(0, False, failure="no mpirun.mpich", contender="MPICH", ranks=None)
        self.assertEqual(tables.failures([self.run_of(0, True, failure="no"), absent], "allreduce"),
                         ["no figure of MPICH: no mpirun.mpich", "no figure of dlaunch, 2 ranks: no"])

    def test_runs_that_nobody_has_made_are_told_of_in_one_line(self):
        with self.assertRaisesRegex(SystemExit, "^/nowhere/runs: No such file or directory: nothing has been measured"):
            rounds.load("/nowhere/runs")


class CommandLineTest(unittest.TestCase):
    def assert_refused(self, words, message):
        done = subprocess.run([sys.executable, os.path.join(BENCH, words[0]), *words[1:]], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 2, words)
        self.assertIn(message, done.stderr.splitlines()[-1])

    def test_what_makes_no_sense_is_refused(self):
        for tool in ("compare_launchers", "compare_collectives", "compare_training", "compare_gpu"):
            subject = ["train"] if tool in ("compare_training", "compare_gpu") else []
            self.assert_refused([tool, *subject, "--rounds", "0"], "--rounds: 0 is less than 1")
            self.assert_refused([tool, *subject, "--out", __file__], f"--out: {__file__}: File exists")
        self.assert_refused(["compare_training", "train", "--workloads", "resnet18:64"], "'resnet18:64' is not NETWORK:BATCH")


class LaunchersTest(unittest.TestCase):
    def measure(self, script):
        """What compare_launchers writes of three rounds of torchrun, which is `script`."""
        with tempfile.TemporaryDirectory() as folder:
            torchrun = os.path.join(folder, "torchrun")
            with open(torchrun, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\n" + script)
            os.chmod(torchrun, 0o755)
            done = subprocess.run(
                [sys.executable, os.path.join(BENCH, "compare_launchers"), "true", "--ranks", "1", "--rounds", "3", "--only",
                 "torchrun", "--torchrun", torchrun, "--out", folder], capture_output=True, text=True, timeout=60, check=False)
            runs = rounds.load(os.path.join(folder, "launchers.jsonl"))
        return done, runs

    def test_rounds_before_a_failure_count_and_the_failure_is_kept(self):
        done, runs = self.measure('cd "${0%/*}"; echo x >>n; [ $(wc -l <n) -lt 4 ] || { echo broken >&2; exit 7; }\n')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([(run["rounds"], run["failure"]) for run in runs], [(2, "exit code 7: broken")])
        self.assertIn("true, torchrun, 1 ranks: exit code 7: broken", done.stdout)

    def test_who_was_asked_for_and_has_nothing_is_a_failure(self):
        done, runs = self.measure("exit 7\n")
        self.assertIn("compare_launchers: torchrun has no result", done.stderr)
        self.assertEqual(done.returncode, 1)
        self.assertEqual([(run["ms"], run["failure"]) for run in runs], [([], "exit code 7: no message")])

    def test_a_launcher_that_nobody_knows_is_refused(self):
        done = subprocess.run([sys.executable, os.path.join(BENCH, "compare_launchers"), "true", "--only", "dlaunch,hydrra"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--only: 'hydrra' is none of dlaunch, openmpi, hydra, torchrun", done.stderr)


    def test_what_a_launcher_never_does_is_left_out_with_the_reason_and_else_counted_on(self):
        self.assertEqual(launchers.why_none("restart", "openmpi", 4), "does not restart jobs")
        self.assertEqual(launchers.why_none("barrier", "torchrun", 1), "has no barrier of its own")
        self.assertEqual(launchers.why_none("true", "torchrun", 64), "not run beyond 16 ranks")
        for what, name, ranks in (("true", "torchrun", 16), ("kill", "hydra", 4), ("restart", "dlaunch", 4)):
            self.assertIsNone(launchers.why_none(what, name, ranks))
        arguments = mock.Mock(programs="bin", torchrun="torchrun", most_torchrun_ranks=16)
        table, _, missing = launchers.launchers("restart", arguments)
        self.assertEqual(list(table), ["dlaunch", "torchrun"])
        self.assertEqual(missing, {})


class LabelsTest(unittest.TestCase):
    def assert_places(self, wanted, expected, low=0, high=100):
        found = style.apart(wanted, 10, low, high)
        self.assertEqual([round(place, 9) for place in found], expected)

    def test_what_is_apart_stays_where_it_is(self):
        self.assert_places([], [])
        self.assert_places([5, 15, 40, 99], [5, 15, 40, 99])

    def test_what_meets_goes_as_far_up_as_down(self):
        self.assert_places([50, 50], [45, 55])
        self.assert_places([48, 50, 52], [40, 50, 60])
        self.assert_places([20, 50, 51, 90], [20, 45.5, 55.5, 90])

    def test_what_is_pushed_meets_others_in_turn(self):
        self.assert_places([34, 50, 50, 50], [32.25 - 1.25, 41, 51, 61])  # the mean of 34, 40, 30, 20 is 31

    def test_nothing_leaves_the_axes(self):
        self.assert_places([98, 99, 99], [80, 90, 100])
        self.assert_places([-3, 0, 1], [0, 10, 20])

    def test_no_places_nearby_are_nearer_in_all(self):
        generator = random.Random(7)
        for _ in range(50):
            wanted = sorted(generator.uniform(20, 80) for _ in range(generator.randint(2, 5)))
            found = style.apart(wanted, 10, -100, 200)
            self.assertTrue(all(second - first > 10 - 1e-9 for first, second in zip(found, found[1:])))
            for _ in range(200):
                other = [place + generator.uniform(-3, 3) for place in found]
                if all(second - first >= 10 for first, second in zip(other, other[1:])):
                    self.assertGreaterEqual(distance(other, wanted), distance(found, wanted) - 1e-9)

    def test_ticks_and_ratios_are_in_words(self):
        self.assertEqual([style.time_text(value) for value in (0.1, 0.9999, 10, 34.04, 1e3, 999.7, 1.488e6)],
                         ["100 ns", "1 µs", "10 µs", "34 µs", "1 ms", "1 ms", "1.49 s"])
        self.assertEqual([style.count_text(value) for value in (100, 1000, 30_000, 10_000_000)], ["100", "1k", "30k", "10M"])
        self.assertEqual([plots.beside_the_best(ratio) for ratio in (0.42, 1.3, 1.04, 0.005)],
                         ["2.4× faster than the best peer", "1.3× slower than the best peer", "as fast as the best peer",
                          "200× faster than the best peer"])


def distance(places, wanted):
    return sum((place - other) ** 2 for place, other in zip(places, wanted))


class MemoryLimitTest(unittest.TestCase):
    def test_it_is_that_of_both_of_two_cores_and_of_no_more(self):
        run = {"operation": "p2p", "cores": 2, "cells": [
            {"way": "memcpy_both", "bytes": 1000, "one_way_us": 2.0}, {"way": "shared_flag", "bytes": 8, "round_trip_us": 1.0}]}
        self.assertEqual(plots.memory_limit([run])(4, 500), 2.0)
        self.assertIsNone(plots.memory_limit([{**run, "cores": 8}]))


class CommandOfDlaunchTest(unittest.TestCase):
    def command(self, operation):
        with mock.patch.object(contenders, "run_command") as run, \
                mock.patch.object(contenders, "load_json", return_value={"cells": []}):
            contenders.Dlaunch("bin", "shm", op="avg").run(operation, 3, [8, 90], 0.5, 10)
            command = run.call_args.args[0]
            return " ".join(command[:2] + command[command.index("shm") + 1:])

    def test_it_gets_what_the_operation_takes(self):
        self.assertEqual(self.command("barrier"), "bin/dbench barrier")
        self.assertEqual(self.command("broadcast"), "bin/dbench broadcast --counts 8,90 --algorithm auto")
        for reduction in ("allreduce", "reduce", "reducescatter"):
            self.assertEqual(self.command(reduction),
                             f"bin/dbench {reduction} --counts 8,90 --algorithm auto --op avg")


class CommandsOfMpiTest(unittest.TestCase):
    def command(self, contender, ranks):
        """What stands before the driver, on two cores of two hardware threads each."""
        with mock.patch.multiple(contenders, CORES=4, WHOLE_CORES=2), \
                mock.patch.object(contenders, "run_command", return_value="{}") as run:
            contender.run("barrier", ranks, [0], 1, 10)
            command = run.call_args.args[0]
            return " ".join(command[:command.index(contender.driver)])

    def test_open_mpi_gives_ranks_slots_on_cores_then_on_hardware_threads_and_then_shares_them(self):
        command = functools.partial(self.command, contenders.OpenMpi("bin", "shm"))
        self.assertEqual(command(2), "mpirun.openmpi -n 2 --bind-to core")
        for ranks in (3, 4):
            self.assertEqual(command(ranks), f"mpirun.openmpi -n {ranks} --use-hwthread-cpus --bind-to hwthread")
        self.assertEqual(command(5), "mpirun.openmpi -n 5 --oversubscribe --mca mpi_yield_when_idle 1")

    def test_mpich_is_bound_as_long_as_each_rank_has_a_place_of_its_own(self):
        command = functools.partial(self.command, contenders.Mpich("bin"))
        self.assertEqual(command(2), "mpirun.mpich -n 2 -bind-to core")
        self.assertEqual(command(4), "mpirun.mpich -n 4 -bind-to hwthread")
        self.assertEqual(command(5), "mpirun.mpich -n 5")


if __name__ == "__main__":
    unittest.main()
