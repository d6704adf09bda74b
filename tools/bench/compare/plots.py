"""Plots of the figures, where matplotlib is installed (python3-matplotlib)."""
import bisect
import functools
import math

from . import tables

# Okabe and Ito's colours, which colour-blind readers tell apart; markers differ too.
STYLES = {
    "dlaunch": ("#D55E00", "o"), "dlaunch ring": ("#E69F00", "v"), "Open MPI": ("#0072B2", "s"), "Open MPI tcp": ("#0072B2", "s"),
    "MPICH": ("#009E73", "^"), "Gloo": ("#CC79A7", "D"), "ring": ("#D55E00", "o"), "butterfly": ("#0072B2", "s"),
}
LIMIT_COLOUR = "#666666"


@functools.cache
def tell_once(log):
    log("no plots: install python3-matplotlib")


def pyplot(log):
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot as module
    except ImportError:
        tell_once(log)
        return None
    module.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False,
                            "axes.grid": True, "grid.color": "#E6E6E6", "axes.axisbelow": True})
    return module


def memory_limit(runs):
    """A function (ranks, bytes) -> µs: no all-reduce on one host is faster. Every rank's buffer is read and written
    once, at the rate at which both cores together copy as much memory; a flag takes its time to the other core. None on
    a machine that has not two cores: what more of them copy together was not measured."""
    # Old runs do not say how many there were; all that are kept are of two.
    cells = [cell for run in runs if run["operation"] == "p2p" and run.get("cores", 2) == 2 for cell in run["cells"]]
    copies = sorted((cell["bytes"], cell["one_way_us"]) for cell in cells if cell["way"] == "memcpy_both")
    flags = [cell["round_trip_us"] / 2 for cell in cells if cell["way"] == "shared_flag"]
    if not copies or not flags:
        return None
    sizes = [size for size, _ in copies]

    def limit(ranks, size):
        each = max(ranks * size / 2, 1)  # what one of two cores copies
        index = min(max(bisect.bisect_left(sizes, each), 0), len(sizes) - 1)
        copied, microseconds = copies[index]
        return max(min(flags), each * microseconds / copied)

    return limit


def label_lines(axes, labels):
    """Names at the right ends of lines, moved apart where they would overlap (in log scale)."""
    low, high = (math.log10(value) for value in axes.get_ylim())
    least, labels = (high - low) * 0.065, sorted(labels, key=lambda label: label[1])
    heights = []
    for _, y, _, _ in labels:
        heights.append(max(math.log10(y), heights[-1] + least if heights else -math.inf))
    top = high
    for index in reversed(range(len(heights))):  # what was pushed out at the top comes down again
        top = heights[index] = min(heights[index], top)
        top -= least
    for (x, _, text, colour), height in zip(labels, heights):
        axes.annotate(text, (x, 10 ** height), xytext=(6, 0), textcoords="offset points", color=colour, va="center",
                      fontsize=9, annotation_clip=False)


def lines_of(axes, series, names, bands=True):
    """Draws {name: [(x, cells)]}; returns what label_lines() needs."""
    labels = []
    for name in names:
        if name not in series:
            continue
        colour, marker = STYLES[name]
        points = sorted(series[name], key=lambda point: point[0])
        xs, ys = [x for x, _ in points], [tables.median_us(cells) for _, cells in points]
        heavy = name in ("dlaunch", "ring", "butterfly")
        axes.plot(xs, ys, color=colour, marker=marker, markersize=5, linewidth=2.2 if heavy else 1.4)
        if bands:
            spreads = [tables.spread(cells) for _, cells in points]
            axes.fill_between(xs, [low for low, _ in spreads], [high for _, high in spreads], color=colour, alpha=0.12,
                              linewidth=0)
        labels.append((xs[-1], ys[-1], name, colour))
    return labels


def by_count(table, ranks):
    series = {}
    for (of_ranks, count), of_cell in table.items():
        if of_ranks == ranks:
            for name, cells in of_cell.items():
                series.setdefault(name, []).append((count, cells))
    return series


def all_reduce(runs, names, log):
    """A figure with a panel for each number of ranks: time by elements, and the limit of memory. None, as of the others
    here, without matplotlib or runs."""
    table = tables.figures(runs, "allreduce")
    module = pyplot(log) if table else None
    if module is None:
        return None
    worlds, limit = sorted({ranks for ranks, _ in table}), memory_limit(runs)
    columns = min(2, len(worlds))
    rows = math.ceil(len(worlds) / columns)
    figure, panels = module.subplots(rows, columns, figsize=(6.2 * columns, 4.1 * rows), squeeze=False)
    for panel in panels.flat[len(worlds):]:
        panel.set_visible(False)
    for axes, ranks in zip(panels.flat, worlds):
        series = by_count(table, ranks)
        axes.set(xscale="log", yscale="log", title=f"{ranks} rank{'s' * (ranks > 1)}")
        labels = lines_of(axes, series, names)
        counts = sorted({count for of_ranks, count in table if of_ranks == ranks})
        if limit and ranks > 1:
            bound = [limit(ranks, count * 4) for count in counts]
            axes.plot(counts, bound, color=LIMIT_COLOUR, linestyle=(0, (2, 2)), linewidth=1.2)
            labels.append((counts[-1], bound[-1], "memory's limit", LIMIT_COLOUR))
        label_lines(axes, labels)
        ratios = [tables.ratio_to_best(of_cell)[0] for (of_ranks, _), of_cell in table.items() if of_ranks == ranks]
        ratios = [ratio for ratio in ratios if ratio]
        if ratios:
            axes.set_title(f"{ranks} rank{'s' * (ranks > 1)}: {tables.geometric_mean(ratios):.2f} of the best peer's time", fontsize=11)
        axes.set_xlabel("float32 elements")
        axes.set_ylabel("all-reduce, µs")
    figure.suptitle("All-reduce: median time of the slowest rank (bands: 10-90 % of the repetitions)", fontsize=12)
    figure.tight_layout(w_pad=5.5, rect=(0, 0, 0.94, 1))
    return figure


def barrier(runs, names, log):
    table = tables.figures(runs, "barrier")
    module = pyplot(log) if table else None
    if module is None:
        return None
    series = {}
    for (ranks, _), of_cell in table.items():
        for name, cells in of_cell.items():
            series.setdefault(name, []).append((ranks, cells))
    figure, axes = module.subplots(figsize=(7, 4.6))
    axes.set(xscale="log", yscale="log", title="Barrier: median time of the slowest rank", xlabel="ranks",
             ylabel="barrier, µs")
    show_whole_numbers(axes, sorted({ranks for ranks, _ in table}))
    label_lines(axes, lines_of(axes, series, names))
    figure.tight_layout(rect=(0, 0, 0.9, 1))
    return figure


def show_whole_numbers(axes, values):
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()


def course(runs, names, log):
    """Three figures, "time", "memory" and "error" by workers; a panel for each number of elements."""
    table = tables.figures(runs, "allreduce")
    module = pyplot(log) if table else None
    if module is None:
        return {}
    figures = {}
    shown = {"Gloo": "torch.distributed"}
    measures = [("time", "mean of all workers, µs", lambda cells: tables.median_us(cells), True),
                ("memory", "peak resident MiB of a worker", lambda cells: max(c["peak_mib"] for _, c in cells), True),
                ("error", "greatest relative error", lambda cells: max(c["error"] for _, c in cells), False)]
    counts = sorted({count for _, count in table})
    for measure, title, value, logarithmic in measures:
        figure, panels = module.subplots(1, len(counts), figsize=(5.2 * len(counts), 4), sharey=True, squeeze=False)
        for axes, count in zip(panels[0], counts):
            axes.set(xscale="log", yscale="log" if logarithmic else "linear", title=f"{count:,} elements",
                     xlabel="workers")
            for name in names:
                points = sorted((ranks, value(of_cell[name])) for (ranks, of_count), of_cell in table.items()
                                if of_count == count and name in of_cell)
                if points:
                    colour, marker = STYLES[name]
                    axes.plot(*zip(*points), color=colour, marker=marker, label=shown.get(name, name))
            show_whole_numbers(axes, sorted({ranks for ranks, _ in table}))
            if measure == "memory":
                ticks = [5, 10, 20, 50, 100, 200]
                axes.set_yticks(ticks, [str(tick) for tick in ticks])
        if measure == "error":
            panels[0][0].set_ylim(bottom=0)  # once all panels, which share the axis, have their points
        panels[0][0].set_ylabel(title)
        panels[0][0].legend(frameon=False)
        figure.tight_layout()
        figures[measure] = figure
    return figures
