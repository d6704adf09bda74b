#!/usr/bin/python3
"""The report's plots, and those of compare_collectives, as they are looked at: no letters on top of others or beyond the
edge, no place left empty. Of the results that this repository holds, and of some that are harder to draw."""
import importlib.util
import itertools
import os
import sys
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
RESULTS = os.path.join(ROOT, "docs", "results")
sys.path[:0] = [os.path.join(ROOT, "tools", "bench")]

from compare import plots as bench_plots  # noqa: E402
from compare import rounds, style  # noqa: E402
from report import blocks, command_line, drawing, gpu_plots, plots, results, training_plots  # noqa: E402


def log(_text):
    pass


def texts_of(figure):
    """[(what is written, its box in pixels)]; of a name that a line joins to a mark, the letters' box alone."""
    from matplotlib.text import Text
    figure.draw_without_rendering()
    found = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    # Ticks beyond the ends of an axis exist, but are not drawn.
    drawn = {id(label) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis._update_ticks()
             for label in (tick.label1, tick.label2)}
    ticks = {id(label) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)
             for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) for label in (tick.label1, tick.label2)}
    return [(text.get_text(), Text.get_window_extent(text)) for text in found if id(text) in drawn or id(text) not in ticks]


def cell(count, microseconds):
    return {"count": count, "us": microseconds, "us_p10": 0.8 * microseconds, "us_p90": 1.2 * microseconds, "peak_mib": 7,
            "error": 1e-7}


def runs_of(worlds, **times):
    """One round of each contender, whose time is that of 1,000 elements."""
    return [{"contender": name.replace("_", " "), "operation": "allreduce", "ranks": ranks, "round": 0, "settled": True,
             "flag_ns": [100, 100], "cells": [cell(count, time * count / 1000) for count in (1000, 100_000, 10_000_000)]}
            for ranks in worlds for name, time in times.items()]


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class PlotsTest(unittest.TestCase):
    def assert_readable(self, figure, what):
        self.addCleanup(style.pyplot(log).close, figure)
        self.assertAlmostEqual(figure.get_figwidth(), style.WIDTH)
        texts = texts_of(figure)
        self.assertGreater(len(texts), 5)
        for (first, box), (second, other) in itertools.combinations(texts, 2):
            self.assertFalse(box.padded(-0.5).overlaps(other.padded(-0.5)), f"{what}: {first!r} is on top of {second!r}")
        width, height = figure.get_size_inches() * figure.dpi
        for text, box in texts:
            self.assertTrue(0 <= box.x0 and box.x1 <= width and 0 <= box.y0 and box.y1 <= height,
                            f"{what}: {text!r} goes beyond the edge")

    def test_those_of_the_committed_report(self):
        report = results.load(os.path.join(RESULTS, "report"))
        drawing.update_figures(report, command_line.SECTIONS)
        count = 0
        for name, _, _, of_section in drawing.parts_of(report.document, command_line.SECTIONS, log):
            for block in of_section:
                if isinstance(block, blocks.Plot):
                    self.assert_readable(block.figure, f"{name}: {block.caption}")
                    count += 1
        self.assertEqual(count, 9)

    def test_those_of_compare_collectives(self):
        names = ["dlaunch", "Open MPI", "Open MPI tcp", "MPICH", "Gloo"]
        for name in ("allreduce", "allreduce-tcp", "barrier"):
            runs = rounds.load(os.path.join(RESULTS, "collectives", name + ".jsonl"))
            self.assert_readable(bench_plots.barrier(runs, names, log) if name == "barrier"
                                 else bench_plots.collective(runs, "allreduce", names, log), name)

    def test_lines_that_end_in_the_same_place_and_any_number_of_panels(self):
        times = {"dlaunch": 5, "dlaunch_ring": 5, "Open_MPI": 5, "MPICH": 5.001, "Gloo": 4.999}
        for worlds in ([1, 2], [2, 3, 8], [2, 4, 8, 16], [1, 2, 3, 4, 5, 6]):
            figure = bench_plots.collective(runs_of(worlds, **times), "allreduce",
                                            [name.replace("_", " ") for name in times], log)
            self.assert_readable(figure, f"{worlds} ranks")
            shown = [ranks for ranks in worlds if ranks > 1]
            self.assertEqual([axes.get_title() for axes in figure.axes],
                             [f"{ranks} ranks: as fast as the best peer" for ranks in shown], "nothing of one rank")
            places = figure.axes[0].get_gridspec()
            taken = [set(itertools.product(axes.get_subplotspec().rowspan, axes.get_subplotspec().colspan))
                     for axes in figure.axes]
            self.assertEqual(sum(map(len, taken)), places.nrows * places.ncols, "no place is empty")

    def test_they_say_of_which_collective_they_are(self):
        runs = [{**run, "operation": "alltoall"} for run in runs_of([2, 3], dlaunch=1, Gloo=2)]
        figure = bench_plots.collective(runs, "alltoall", ["dlaunch", "Gloo"], log)
        self.assert_readable(figure, "all-to-all")
        self.assertIn("All-to-all of float32", figure.get_suptitle() if hasattr(figure, "get_suptitle")
                      else figure._suptitle.get_text())
        self.assertIsNone(bench_plots.collective(runs, "gather", ["dlaunch", "Gloo"], log))

    def test_of_one_rank_alone_there_is_nothing_to_see(self):
        self.assertIsNone(bench_plots.collective(runs_of([1], dlaunch=1, Gloo=2), "allreduce", ["dlaunch", "Gloo"], log))

    def test_rows_whose_figures_are_alike_and_limits_in_their_midst(self):
        def entry(measure, case, contender, value):
            return blocks.figure("s", measure, case, contender, "", [0.9 * value, value, 1.1 * value])

        ways = [{"network": network, "type": kind, "images per rank": 64, "accumulation steps": steps}
                for network, kind, steps in itertools.product(("small CNN", "ResNet-18"), ("fp32", "bf16"), (1, 2))]
        entries = [entry("speed", way, name, 1000) for way in ways
                   for name in ("dlaunch", "dlaunch, Winograd", "PyTorch", "PyTorch channels_last")]
        limits = {(network, kind): limit for network in ("small CNN", "ResNet-18")
                  for kind, limit in (("fp32", 1000), ("bf16", 1150))}
        self.assert_readable(training_plots.speed(entries, limits, log), "training")

        entries = [entry(what, {"ranks": ranks}, name, value) for what in ("true", "barrier", "kill", "restart")
                   for ranks in (4, 16) for name, value in (("dlaunch", 1000), ("Open MPI", 1001), ("Hydra", 0.5))]
        self.assert_readable(plots.launchers(entries, log), "launchers")

    def test_the_bound_of_a_gpu_is_no_contender(self):
        entries = [{"case": {"ranks": ranks, "shape": shape}, "contender": name, "value": value, "low": value, "high": value}
                   for ranks in (1, 2) for shape in ("[32, 128]", "[512, 4, 4, 512]")
                   for name, value in (("dlaunch", 9), ("PyTorch", 50), ("PyTorch DDP", 70), (gpu_plots.BOUND, 5))]
        figure = gpu_plots.batch_norm(entries, log)
        self.assert_readable(figure, "GPU")
        self.assertEqual([text.get_text() for text in figure.axes[0].get_legend().get_texts()],
                         ["dlaunch", "PyTorch", "PyTorch DDP", gpu_plots.BOUND])

    def test_the_same_plot_has_the_same_text_each_time(self):
        subjects = [("a", [0.5, 2.0]), ("b", [0.1])]
        self.assertEqual(*(plots.svg(plots.ratios(subjects, log), for_page) for for_page in (True, True)))


if __name__ == "__main__":
    unittest.main()
