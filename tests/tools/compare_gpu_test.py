#!/usr/bin/python3
"""tools/bench/compare_gpu with programs in place of dbench and PyTorch: what it leaves behind, and its exit code."""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.normpath(os.path.join(HERE, "..", "..", "tools", "bench", "compare_gpu"))
DEADLINE = 120
# For `device`: dbench writes its results to the file behind --json, the last word.
GOOD = """for file; do :; done; echo '{"cells": [{"rate": 1}, {"rate": 2}, {"rate": 3}]}' >"$file" """
BAD = "echo 'dbench: no device' >&2; exit 3"
# A rank outlives the process that started it, and its folder is there until that cleans up.
HANGS = 'mktemp -d; sleep 600 & echo $! >"$PIDS"; wait'


class CompareGpuTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.temporary = os.path.join(self.folder, "tmp")
        os.mkdir(self.temporary)
        self.pids = os.path.join(self.folder, "pids")

    def start(self, dbench, torch):
        for name, script in (("dbench", dbench), ("python", torch)):
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\n{script}\n")
            os.chmod(path, 0o755)
        return subprocess.Popen(
            [sys.executable, PROGRAM, "device", "--programs", self.folder, "--torch-python",
             os.path.join(self.folder, "python"), "--out", os.path.join(self.folder, "out"), "--limit", "10"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": self.temporary, "PIDS": self.pids})

    def compare(self, dbench, torch):
        process = self.start(dbench, torch)
        try:
            out, errors = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)

    def assert_ends(self, pid):
        end = time.monotonic() + 60
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_a_run_that_is_not_done_in_time_ends_with_all_its_ranks_and_files(self):
        done = self.compare(GOOD, HANGS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("torch skipped: not done after 10 s", done.stdout)
        with open(self.pids, encoding="ascii") as file:
            self.assert_ends(int(file.read()))
        self.assertEqual(os.listdir(self.temporary), [])

    def test_what_is_broken_off_leaves_the_table_of_what_there_is(self):
        process = self.start(GOOD, HANGS)
        end = time.monotonic() + 60
        while not (os.path.exists(self.pids) and os.path.getsize(self.pids)) and time.monotonic() < end:
            time.sleep(0.01)
        process.terminate()
        out, errors = process.communicate(timeout=DEADLINE)
        self.assertNotEqual(process.returncode, 0)
        with open(os.path.join(self.folder, "out", "gpu-device.txt"), encoding="ascii") as file:
            table = file.read()
        self.assertRegex(table, r"fp32 GFLOP/s +2 +-\n")
        self.assertEqual(out, table, errors)

    def test_the_path_of_collectives_belongs_to_the_figures(self):
        cells = '{"cells": [{"rate": 1}, {"rate": 2}, {"rate": 3}], "path": "ipc", "why_path": "there are two"}'
        done = self.compare(f"for file; do :; done; echo '{cells}' >\"$file\"", BAD)
        self.assertIn("dlaunch: collectives on GPU memory take the path ipc: there are two\n", done.stdout)

    def test_why_steps_are_no_graphs_belongs_to_the_figures(self):
        cells = '{"cells": [{"rate": 1}, {"rate": 2}, {"rate": 3}], "why_not_repeated": "the driver is too old"}'
        done = self.compare(f"for file; do :; done; echo '{cells}' >\"$file\"", BAD)
        self.assertIn("dlaunch: steps are not recorded as CUDA graphs: the driver is too old\n", done.stdout)

    def test_what_a_run_printed_before_it_hung_or_failed_is_kept(self):
        self.compare("echo 'cell 1: 2 us'; echo of it >&2; " + HANGS, "echo the cause >&2; echo the end >&2; exit 1")
        with open(os.path.join(self.folder, "out", "gpu-device.jsonl"), encoding="ascii") as file:
            ours, torch = [json.loads(line) for line in file]
        self.assertEqual((ours["failure"], ours["errors"]), ("not done after 10 s", "of it\n"))
        self.assertTrue(ours["output"].startswith("cell 1: 2 us\n"), ours["output"])
        self.assertEqual((torch["failure"], torch["errors"]), ("the end", "the cause\nthe end\n"))

    def test_the_order_changes_from_round_to_round(self):
        self.compare(GOOD, "echo '{\"cells\": [{\"rate\": 1}, {\"rate\": 2}, {\"rate\": 3}]}'")
        with open(os.path.join(self.folder, "out", "gpu-device.jsonl"), encoding="ascii") as file:
            order = [json.loads(line)["contender"] for line in file]
        self.assertEqual(order, ["dlaunch", "torch", "torch", "dlaunch", "dlaunch", "torch"])

    def test_the_exit_code_says_whether_dlaunch_has_results(self):
        done = self.compare(BAD, BAD)
        self.assertEqual(done.returncode, 1)
        self.assertIn("dlaunch skipped: dbench: no device", done.stdout)
        self.assertIn("compare_gpu: no run of dlaunch ended well: dbench: no device", done.stderr)
        self.assertEqual(self.compare(GOOD, BAD).returncode, 0)


if __name__ == "__main__":
    unittest.main()
