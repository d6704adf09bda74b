#!/usr/bin/python3
"""The parts of tools/report that its users meet on bad days only: disturbed steps, commands that hang, two reports that
differ."""
import os
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.normpath(os.path.join(HERE, "..", "..", "..", "tools", "bench"))]

from report import command_line, comparison, gpu, load, results, runner, training  # noqa: E402
from report.blocks import figure, table_of  # noqa: E402


def loads(*shares):
    """Watches that report these shares of the cores, one after the other."""
    left = list(shares)

    class Watch:
        def report(self):
            share = left.pop(0)
            return {"others": share, "steal": 0.0, "load_average": [0, 0, 0], "disturbed": share > load.DISTURBED}

    return Watch


class RunnerTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.results = results.begin(os.path.join(self.folder, "out"), "quick", "abc")
        self.lines = []

    def run_step(self, script, watch=load.Watch, limit=60, timed=True):
        counter = os.path.join(self.folder, "runs")
        step = runner.Step("section", "step", ["sh", "-c", f"echo run >>{counter}; {script}"], 1,
                           lambda folder, output: output.strip(), limit=limit, timed=timed)
        runner.Runner(self.results, self.lines.append, runner.Interruption(), watch=watch).run([step])
        return self.results.steps["section/step"]

    def test_the_first_undisturbed_attempt_counts(self):
        record = self.run_step(f"wc -l <{self.folder}/runs", loads(0.5, 0.01, 0.0))
        self.assertEqual(record["data"], "2")
        self.assertEqual([attempt["others"] for attempt in record["attempts"]], [0.5, 0.01])
        self.assertFalse(record["load"]["disturbed"])

    def test_of_disturbed_attempts_the_one_with_the_least_load_is_kept_and_marked(self):
        record = self.run_step(f"wc -l <{self.folder}/runs", loads(0.5, 0.2, 0.3))
        self.assertEqual(record["data"], "2")
        self.assertEqual(len(record["attempts"]), 3)
        self.assertTrue(record["load"]["disturbed"])

    def test_what_measures_no_time_is_neither_run_again_nor_marked(self):
        record = self.run_step(f"wc -l <{self.folder}/runs", loads(0.5), timed=False)
        self.assertEqual((record["data"], len(record["attempts"])), ("1", 1))
        self.assertEqual((record["load"]["others"], record["load"]["disturbed"]), (0.5, False))

    def test_on_a_busy_machine_all_attempts_are_counted_on(self):
        steps = [runner.Step("section", key, [], seconds, None, timed=timed)
                 for key, seconds, timed in (("a", 10, True), ("b", 100, False))]
        self.assertEqual(runner.expected_seconds(steps, busy=False), 110)
        self.assertEqual(runner.expected_seconds(steps, busy=True), 130)

    def test_what_has_a_result_is_not_run_again_and_what_failed_is(self):
        self.assertEqual(self.run_step("exit 3", loads(0, 0))["state"], "failed")
        self.assertEqual(self.run_step("echo fine", loads(0, 0))["state"], "done")
        self.assertEqual(self.run_step("echo again", loads(0, 0))["data"], "fine")

    def test_a_command_that_hangs_ends_with_all_that_it_started(self):
        pid_file = os.path.join(self.folder, "pid")
        record = self.run_step(f"sleep 600 & echo $! >{pid_file}; wait", limit=5)
        self.assertEqual((record["state"], record["reason"]), ("failed", "not done after 5 s"))
        with open(pid_file, encoding="ascii") as file:
            pid = int(file.read())
        end = time.monotonic() + 60
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
            time.sleep(0.01)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_output_that_cannot_be_read_is_a_failed_step(self):
        step = runner.Step("section", "step", ["echo", "{"], 1, lambda folder, output: [][0])
        runner.Runner(self.results, self.lines.append, runner.Interruption()).run([step])
        self.assertIn("cannot be read", self.results.steps["section/step"]["reason"])

    def test_a_signal_ends_a_run_before_its_next_command(self):
        interruption = runner.Interruption()
        interruption.on_signal(15, None)
        step = runner.Step("section", "step", ["true"], 1, lambda folder, output: output)
        with self.assertRaisesRegex(runner.Interrupted, "SIGTERM"):
            runner.Runner(self.results, self.lines.append, interruption).run([step])
        self.assertEqual(self.results.steps["section/step"]["state"], "interrupted")


class LoadTest(unittest.TestCase):
    def test_a_busy_machine_is_told_of_before_the_first_step(self):
        lines = []
        self.assertTrue(command_line.others_disturb(lines.append, loads(0.8), seconds=0))
        self.assertEqual(len(lines), 1)
        self.assertIn("other programs take 80% of the cores", lines[0])
        self.assertFalse(command_line.others_disturb(lines.append, loads(0.01), seconds=0))
        self.assertEqual(len(lines), 1)

    def test_our_own_children_are_no_other_load(self):
        watch = load.Watch()
        with tempfile.TemporaryDirectory() as folder:
            runner.run_command(["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"], 60, folder,
                               runner.Interruption())
        own = load.own_seconds() - watch.own
        self.assertGreater(own, 0.05)
        used = load.machine_seconds()[0] - watch.used
        self.assertGreater(used, 0.5 * own, "the machine's time has ours in it")
        self.assertGreaterEqual(watch.report()["others"], 0)


def document(**values):
    """A report whose figures are (value, low, high) of a contender."""
    entries = [figure("s", "time", {"ranks": 2}, name, "µs", [1, 1], low=low, high=high) | {"value": value}
               for name, (value, low, high) in values.items()]
    return {"schema": 1, "mode": "full", "commit": "abc", "begun": "", "machine": {}, "figures": entries}


def gpu_runs():
    """As compare_gpu writes them: two rounds of each contender, of which one failed."""
    norm = {"dlaunch": ("[32, 128]", "[512, 4, 4, 512]"), "torch": ([32, 128], [512, 4, 4, 512])}
    times = {"dlaunch": ((8, 40), (10, 60)), "torch": ((80, 90), (120, 110))}
    runs = []
    for number in (0, 1):
        for name, shapes in norm.items():
            cells = [{"shape": shape, "us": us, "peak_mib": 1.5} for shape, us in zip(shapes, times[name][number])]
            if name == "dlaunch":
                cells[1]["bound_us"] = 30
            runs.append({"what": "syncbn", "ranks": 2, "round": number, "contender": name, "result": {"cells": cells}})
        runs.append({"what": "train", "ranks": 1, "round": number, "contender": "dlaunch",
                     "result": {"images_per_second": 20000 + number, "ms": 25, "tensor_mib": 900}})
    runs.append({"what": "train", "ranks": 1, "round": 0, "contender": "torch compiled", "failure": "no compiler"})
    runs.append({"what": "device", "ranks": 1, "round": 0, "contender": "torch", "result": {
        "cells": [{"what": "copy", "how": "memcpy", "unit": "GB/s", "rate": 4200.0}]}})
    return {"gpu/all": runs}


class GpuTest(unittest.TestCase):
    def test_figures_are_medians_of_rounds_by_shape_and_contender(self):
        entries = gpu.figures(gpu_runs())
        values = {(entry["measure"], str(entry["case"]), entry["contender"]): (entry["value"], entry["low"], entry["high"])
                  for entry in entries}
        small, image = "{'ranks': 2, 'shape': '[32, 128]'}", "{'ranks': 2, 'shape': '[512, 4, 4, 512]'}"
        self.assertEqual(values["syncbn", small, "dlaunch"], (9, 8, 10))
        self.assertEqual(values["syncbn", image, "PyTorch"], (100, 90, 110))
        self.assertEqual(values["syncbn bound", image, "memory bandwidth"], (30, 30, 30))
        self.assertNotIn(("syncbn bound", small, "memory bandwidth"), values)
        self.assertEqual(values["speed", "{'network': 'ResNet-18, bf16', 'ranks': 1}", "dlaunch"], (20000.5, 20000, 20001))
        self.assertEqual(values["device, GB/s", "{'what': 'copy, memcpy'}", "PyTorch"], (4200, 4200, 4200))
        self.assertFalse(any(entry["contender"] == "PyTorch compiled" for entry in entries))

    def test_the_section_has_a_table_of_each_measure_and_draws_what_it_can(self):
        entries = gpu.figures(gpu_runs())
        blocks = [block for block in gpu.blocks({"mode": "full"}, entries, lambda text: None) if block]
        tables = [block for block in blocks if hasattr(block, "rows")]
        self.assertEqual(len(tables), 7)
        self.assertEqual(tables[0].rows[0][-1], "0.09")  # ours by PyTorch's: 9 by 100
        self.assertEqual(tables[0].command, "tools/report OUT_DIR --only gpu")


class TrainingTest(unittest.TestCase):
    def test_a_contender_of_which_a_seed_failed_stays_beside_the_others(self):
        def run(contender, seed, top1):
            return {"config": "c", "seed": seed, "contender": contender,
                    "result": {"top1": [top1], "epoch_seconds": [1.0], "peak_mib": 1}}

        runs = [run("dlaunch", 1, 0.2), run("dlaunch", 2, 0.4), run("torch", 1, 0.6),
                {"config": "c", "seed": 2, "contender": "torch", "failure": "not done"}]
        entries = training.figures({"training/accuracy-c": runs})
        table = table_of(entries, "top-1", {"configuration": "configuration", "epochs": "epochs"}, "", "")
        self.assertEqual(table.rows, [["c", "1", "0.3 (0.2–0.4)", "0.6", "0.50"]])


class ComparisonTest(unittest.TestCase):
    def test_only_what_is_beyond_the_noise_is_told(self):
        text = comparison.compare(document(slower=(10, 9, 11), faster=(10, 9, 11), noisy=(10, 5, 15), alike=(10, 10, 10)),
                                  document(slower=(20, 19, 22), faster=(5, 4, 6), noisy=(14, 8, 20), alike=(10.1, 10.1, 10.1)))
        self.assertIn("worse in B: 1 of 4 figures", text)
        self.assertIn("2.00×  s, time: slower, 2 ranks: 10 (9–11) -> 20 (19–22) µs", text)
        self.assertIn("better in B: 1 of 4 figures", text)
        self.assertIn("0.50×  s, time: faster", text)
        self.assertIn("the same within the noise: 2", text)

    def test_more_of_what_should_be_great_is_better(self):
        older, newer = document(speed=(10, 9, 11)), document(speed=(20, 19, 21))
        older["figures"][0]["better"] = newer["figures"][0]["better"] = "higher"
        self.assertIn("better in B: 1", comparison.compare(older, newer))

    def test_machines_that_differ_are_said_to(self):
        older, newer = document(), document()
        older["machine"], newer["machine"] = ({"cpu": {"model": model, "cores": 2}} for model in ("one", "other"))
        self.assertIn("cpu, model: one -> other", comparison.compare(older, newer))


class TableTest(unittest.TestCase):
    def test_ours_is_set_beside_the_best_peer_and_not_beside_ours(self):
        entries = [figure("s", "time", {"ranks": 2}, name, "µs", [value])
                   for name, value in (("dlaunch", 2.0), ("dlaunch ring", 1.0), ("a", 8.0), ("b", 4.0))]
        table = table_of(entries, "time", {"ranks": "ranks"}, "", "")
        self.assertEqual(table.rows[0][-1], "0.50")


if __name__ == "__main__":
    unittest.main()
