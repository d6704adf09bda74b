"""Plots of the figures of compare_collectives."""
import bisect

from . import contenders, tables
from .style import MUTED, STYLES, WIDTH, count_text, decades, label_lines, panels, pyplot, time_text, whole_numbers


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


def lines_of(axes, series, names):
    """Draws {name: [(x, cells)]}; returns what label_lines() needs."""
    labels = []
    for name in names:
        if name not in series:
            continue
        colour, marker = STYLES[name]
        points = sorted(series[name], key=lambda point: point[0])
        xs, ys = [x for x, _ in points], [tables.median_us(cells) for _, cells in points]
        axes.plot(xs, ys, color=colour, marker=marker, markersize=5, linewidth=2.2 if name == tables.OURS else 1.4)
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


def beside_the_best(ratio):
    """Our time by that of the best peer, in words."""
    factor = max(ratio, 1 / ratio)
    shown = f"{factor:.1f}" if factor < 10 else f"{factor:,.0f}"
    return "as fast as the best peer" if shown == "1.0" else (
        f"{shown}× {'faster' if ratio < 1 else 'slower'} than the best peer")


def collective(runs, operation, names, log):
    """A figure with a panel for each number of ranks, but for one rank, which has nobody to talk to: time by elements,
    and of all-reduce the limit of memory. None, as of the others here, without matplotlib or runs."""
    table = tables.figures(runs, operation)
    worlds = sorted({ranks for ranks, _ in table if ranks > 1})
    module = pyplot(log) if worlds else None
    if module is None:
        return None
    limit = memory_limit(runs) if operation == "allreduce" else None
    figure, axes_of = panels(module, len(worlds), 3.1)
    title = contenders.COLLECTIVES[operation]
    figure.suptitle(f"{title} of float32: median time of the slowest rank (bands: 10–90 % of the repetitions)")
    for axes, ranks in zip(axes_of, worlds):
        ratios = [tables.ratio_to_best(of_cell)[0] for (of_ranks, _), of_cell in table.items() if of_ranks == ranks]
        ratios = [ratio for ratio in ratios if ratio]
        axes.set(xscale="log", yscale="log", xlabel="elements", title=f"{ranks} ranks" + (
            f": {beside_the_best(tables.geometric_mean(ratios))}" if ratios else ""))
        decades(axes.xaxis, count_text)
        decades(axes.yaxis, time_text)
        labels = lines_of(axes, by_count(table, ranks), names)
        counts = sorted({count for of_ranks, count in table if of_ranks == ranks})
        if limit:
            bound = [limit(ranks, count * 4) for count in counts]
            axes.plot(counts, bound, color=MUTED, linestyle=(0, (2, 2)), linewidth=1.2)
            labels.append((counts[-1], bound[-1], "memory's limit", MUTED))
        label_lines(axes, labels)
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
    figure, (axes,) = panels(module, 1, 4)
    axes.set(xscale="log", yscale="log", title="Barrier: median time of the slowest rank (bands: 10–90 % of the repetitions)",
             xlabel="ranks")
    whole_numbers(axes, sorted({ranks for ranks, _ in table}))
    decades(axes.yaxis, time_text)
    label_lines(axes, lines_of(axes, series, names))
    return figure


def course(runs, names, log):
    """Three figures, "time", "memory" and "error" by ranks; a panel for each number of elements."""
    table = tables.figures(runs, "allreduce")
    module = pyplot(log) if table else None
    if module is None:
        return {}
    figures = {}
    measures = {"time": ("mean over all ranks", tables.median_us),
                "memory": ("peak memory of a rank, MiB", lambda cells: max(cell["peak_mib"] for _, cell in cells)),
                "error": ("greatest relative error, 1e−7", lambda cells: max(cell["error"] for _, cell in cells) * 1e7)}
    counts, worlds = (sorted({key[place] for key in table}) for place in (1, 0))
    for measure, (title, value) in measures.items():
        figure, axes_of = module.subplots(1, len(counts), figsize=(WIDTH, 3.1), sharey=True, squeeze=False)
        for axes, count in zip(axes_of[0], counts):
            axes.set(xscale="log", yscale="linear" if measure == "error" else "log", xlabel="ranks", title=f"{count:,} elements")
            ends = []
            for name in names:
                points = sorted((ranks, value(of_cell[name])) for (ranks, of_count), of_cell in table.items()
                                if of_count == count and name in of_cell)
                if points:
                    shown = tables.SHOWN.get(name, name)
                    colour, marker = STYLES[shown]
                    axes.plot(*zip(*points), color=colour, marker=marker, markersize=5)
                    ends.append((*points[-1], shown, colour))
            whole_numbers(axes, worlds)
        first = axes_of[0][0]
        first.set_ylabel(title)
        if measure == "time":
            decades(first.yaxis, time_text)
        elif measure == "memory":
            ticks = [5, 10, 20, 50, 100, 200, 500]
            first.set_yticks(ticks, [str(tick) for tick in ticks])
        else:
            first.set_ylim(bottom=0)  # once all panels, which share the axis, have their points
        label_lines(axes, ends)  # of the last panel
        figures[measure] = figure
    return figures
