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

    def compare(self, dbench, torch):
        for name, script in (("dbench", dbench), ("python", torch)):
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\n{script}\n")
            os.chmod(path, 0o755)
        return subprocess.run(
            [sys.executable, PROGRAM, "device", "--programs", self.folder, "--torch-python",
             os.path.join(self.folder, "python"), "--out", os.path.join(self.folder, "out"), "--limit", "10"],
            capture_output=True, text=True, timeout=DEADLINE, check=False,
            env={**os.environ, "TMPDIR": self.temporary, "PIDS": self.pids})

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
