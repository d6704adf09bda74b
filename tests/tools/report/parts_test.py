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

from report import blocks, command_line, comparison, context, drawing, gpu, infrastructure, launching, load, page  # noqa: E402
from report import plots, results, runner, summary, training  # noqa: E402
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
        self.assertTrue(all(heading for block in tables for heading in block.head))


class TrainingTest(unittest.TestCase):
    def test_a_contender_of_which_a_seed_failed_stays_beside_the_others(self):
        def run(contender, seed, top1):
            return {"config": "c", "seed": seed, "contender": contender,
                    "result": {"top1": [top1], "epoch_seconds": [1.0], "peak_mib": 1}}

        runs = [run("dlaunch", 1, 0.2), run("dlaunch", 2, 0.4), run("torch", 1, 0.6),
                {"config": "c", "seed": 2, "contender": "torch", "failure": "not done"}]
        entries = training.figures({"training/accuracy-c": runs})
        table = table_of(entries, "top-1", ["configuration", "epochs"], "", "")
        self.assertEqual(table.rows, [["c", "1", "0.3 (0.2–0.4)", "0.6", "2.00"]])


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


def column(*values):
    """Texts of figures that are one below the other: a value, or (value, low, high)."""
    entries = [dict(zip(("value", "low", "high"), value if isinstance(value, tuple) else (value,) * 3)) for value in values]
    return blocks.column_texts(entries)


class NotesTest(unittest.TestCase):
    def test_whoever_failed_is_told_and_whoever_is_not_there_only_once(self):
        peers = {"Open MPI": "4.1", "MPICH": "missing: no mpiexec.hydra", "torchrun": "PyTorch's"}
        runs = [{"program": "kill", "ranks": 4, "launcher": "torchrun", "ms": [1.0], "failure": "exit code 7: broken"},
                {"program": "barrier", "launcher": "openmpi", "failure": "mpicc.openmpi is not installed"},
                {"program": "kill", "launcher": "hydra", "failure": "mpiexec.hydra is not installed"},
                {"program": "kill", "ranks": 4, "launcher": "dlaunch", "ms": [1.0]}]
        step = {"section": "launchers", "state": "done", "data": runs, "load": {"disturbed": False}}
        notes = drawing.notes_of({"machine": {"peers": peers}, "left_out": {}, "steps": {"launchers/all": step}}, launching)
        self.assertEqual(notes, ["MPICH: missing: no mpiexec.hydra", "torchrun, kill, 4 ranks: exit code 7: broken",
                                 "Open MPI, barrier: mpicc.openmpi is not installed"])

    def test_a_program_that_is_named_has_to_be_there(self):
        with self.assertRaisesRegex(ValueError, "--torchrun: /nowhere/torchrun is no program"):
            context.find_torchrun("/nowhere/torchrun", "")


class PeakTest(unittest.TestCase):
    def test_it_is_that_of_the_two_cores_that_training_has(self):
        cells = [{"what": "fp32", "unit": "GFLOP/s", "rate_p10": 0, "rate_p90": 0}]
        data = {ranks: {"operation": "machine", "ranks": ranks, "cells": [{**cell, "rate": 100.0 * ranks} for cell in cells]}
                for ranks in (1, 2, 16)}
        self.assertEqual(infrastructure.peak(infrastructure.figures(data), "fp32"), 200)


class ResultsTest(unittest.TestCase):
    def test_half_a_report_is_refused_by_what_it_lacks(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "results.json"), "w", encoding="ascii") as file:
                file.write('{"schema": 1, "mode": "full", "commit": "a", "begun": "", "updated": "", "machine": {}, "steps": 7}')
            with self.assertRaisesRegex(results.UnusableFolder, "results.json has no planned, steps, left_out, figures$"):
                results.load(folder)


class TableTest(unittest.TestCase):
    def entries(self, measure, better, **values):
        return [figure("s", measure, {"ranks": 2}, name, "x", [value], better) for name, value in values.items()]

    def test_ours_is_set_beside_the_best_peer_and_not_beside_ours(self):
        entries = [figure("s", "time", {"ranks": 2}, name, "µs", [value])
                   for name, value in (("dlaunch", 2.0), ("dlaunch ring", 1.0), ("a", 8.0), ("b", 4.0))]
        table = table_of(entries, "time", ["ranks"], "", "")
        self.assertEqual(table.rows[0][-1], "0.50")

    def test_all_ratios_go_the_same_way_and_say_which(self):
        entries = (self.entries("time", "lower", dlaunch=2.0, a=8.0, b=4.0)
                   + self.entries("speed", "higher", dlaunch=8.0, a=2.0, b=4.0))
        time_of, speed = (table_of(entries, measure, ["ranks"], measure, "") for measure in ("time", "speed"))
        self.assertEqual((time_of.head[-1], time_of.rows[0][-1]), ("ours / best peer\nless is better", "0.50"))
        self.assertEqual((speed.head[-1], speed.rows[0][-1]), ("best peer / ours\nless is better", "0.50"))
        self.assertIn("less is better", time_of.caption)
        self.assertIn("more is better", speed.caption)

    def test_without_a_race_there_is_no_ratio(self):
        table = table_of(self.entries("top-1", "higher", dlaunch=0.25, a=0.5), "top-1", ["ranks"], "", "", ours=None)
        self.assertEqual(table.head, ["ranks", "dlaunch", "a"])

    def test_ours_comes_first_and_rows_stay_in_the_order_of_measuring(self):
        entries = [figure("s", "time", {"network": network}, name, "µs", [1.0])
                   for network in ("z", "a") for name in ("peer", "dlaunch")]
        table = table_of(entries, "time", ["network"], "", "")
        self.assertEqual(table.head[:3], ["network", "dlaunch", "peer"])
        self.assertEqual([row[0] for row in table.rows], ["z", "a"])

    def test_a_column_has_the_same_decimals_in_all_rows(self):
        self.assertEqual(column((8, 7.94, 8.03), 6.34, 7.1), ["8.00 (7.94–8.03)", "6.34", "7.10"])
        self.assertEqual(column((76, 66, 96.25), 9.5), ["76.0 (66.0–96.2)", "9.5"])
        self.assertEqual(column(99, 2105, 12336), ["99", "2,105", "12,336"])
        self.assertEqual(column(10, (20, 19, 21)), ["10", "20 (19–21)"], "decimals that nothing needs")

    def test_figures_that_are_far_apart_have_three_digits_each(self):
        self.assertEqual(column((0.41, 0.37, 0.46), 1.64, (14.25, 13, 15), 4226), ["0.410 (0.370–0.460)", "1.64",
                                                                                 "14.2 (13.0–15.0)", "4,226"])
        self.assertEqual(column(0, 6e-8, 1.25e-7), ["0", "6.0e-08", "1.2e-07"])

    def test_a_spread_that_does_not_show_is_left_out(self):
        self.assertEqual(column((316.2, 316.1, 316.3), (320, 318, 322)), ["316", "320 (318–322)"])

    def test_a_column_of_ratios_has_as_many_decimals_as_its_least_needs(self):
        self.assertEqual(blocks.ratio_texts([0.345, None, 1.2]), ["0.34", "–", "1.20"])
        self.assertEqual(blocks.ratio_texts([0.0048, 0.023, 1.051]), ["0.005", "0.023", "1.051"])

    def test_cells_are_told_as_people_say_them(self):
        self.assertEqual(blocks.case_text({"ranks": 1, "elements": 1000, "network": "n"}.items()), "1 rank, 1,000 elements, n")

    def test_on_paper_a_spread_and_a_remark_go_below(self):
        html = page.table(blocks.Table("c", ["what", "ours / peer\nless is better"], [["a (b)", "1.5 (1–2)"]]))
        self.assertIn("<td class=\"text whole\">a (b)</td><td>1.5 <small>(1–2)</small></td>", html)
        self.assertIn("<th>ours / peer <small>less is better</small></th>", html)


class SummaryTest(unittest.TestCase):
    def document(self, disturbed):
        entries = [figure("launchers", "true", {"ranks": 1}, name, "ms", [value])
                   for name, value in (("dlaunch", 5.0), ("Hydra", 4.0))]
        entries += [figure("training", "speed", {"network": "n"}, name, "images/s", [value], "higher")
                    for name, value in (("dlaunch", 8.0), ("PyTorch", 2.0))]
        return {"figures": entries, "steps": {"launchers/true-1": {"section": "launchers", "load": {"disturbed": disturbed}}}}

    def rows(self, disturbed):
        found = list(summary.blocks(self.document(disturbed), lambda text: None))
        return [block.html for block in found if hasattr(block, "html")], next(
            block.rows for block in found if hasattr(block, "rows"))

    def test_less_than_one_is_for_us_whatever_is_measured(self):
        texts, rows = self.rows(disturbed=False)
        self.assertEqual([row[:3] for row in rows], [["training: time of an image", "1", "0.25"],
                                                     ["starting /bin/true", "1", "1.25"]])
        self.assertEqual(len(texts), 1)

    def test_ratios_of_a_section_that_others_disturbed_are_marked(self):
        texts, rows = self.rows(disturbed=True)
        self.assertEqual([row[0] for row in rows], ["training: time of an image", "starting /bin/true *"])
        self.assertIn("* Other programs", texts[1])


class LaunchersTest(unittest.TestCase):
    def test_tables_and_plots_have_the_same_names_and_what_is_missing_has_its_reason(self):
        runs = [{"program": what, "ranks": ranks, "launcher": name, "ms": [1.0]} for what, ranks, name in (
            ("true", 64, "dlaunch"), ("true", 64, "openmpi"), ("true", 1, "torchrun"), ("true", 1, "dlaunch"),
            ("restart", 4, "torchrun"), ("barrier", 4, "openmpi"))]
        entries = launching.figures({"launchers/all": runs})
        self.assertEqual({entry["contender"] for entry in entries}, {"dlaunch", "Open MPI", "torchrun"})
        none = {(what, heading, name): figure for what in ("true", "barrier", "restart")
                for heading, group in plots.launch_groups(entries, what, plots.ranks_text).items()
                for name, figure in group.items() if isinstance(figure, str)}
        self.assertEqual(none, {
            ("true", "64 ranks", "torchrun"): "not run beyond 16 ranks", ("true", "1 rank", "Open MPI"): "no figure",
            ("barrier", "4 ranks", "torchrun"): "has no barrier of its own", ("barrier", "4 ranks", "dlaunch"): "no figure",
            ("restart", "4 ranks", "Open MPI"): "does not restart jobs", ("restart", "4 ranks", "dlaunch"): "no figure"})


if __name__ == "__main__":
    unittest.main()
