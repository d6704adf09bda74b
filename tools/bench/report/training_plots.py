"""Plots of the sections on training and on SyncBatchNorm."""
import statistics

from compare.style import MUTED, STYLES, WIDTH, decades, label_lines, pyplot, time_text, whole_numbers

from .blocks import OURS
from .plots import bar, height, rows


def batch_norm(entries, log):
    """A panel for each number of ranks: time by features, a pair of lines for each contender."""
    here = [entry for entry in entries if entry["measure"] == "time"]
    module = pyplot(log) if here else None
    if module is None:
        return None
    worlds = sorted({entry["case"]["ranks"] for entry in here})
    figure, panels = module.subplots(1, len(worlds), figsize=(WIDTH, 3.4), sharey=True, squeeze=False)
    labels_of = {}
    for axes, ranks in zip(panels[0], worlds):
        axes.set(xscale="log", yscale="log", title=f"{ranks} ranks", xlabel="features")
        labels = labels_of[axes] = []
        for (name, count), points in series_of(entries, "time", ranks).items():
            colour, marker = STYLES[name]
            xs, ys, lows, highs = zip(*points)
            axes.plot(xs, ys, color=colour, marker=marker, markersize=5, linestyle="-" if count == 64 else "--",
                      linewidth=2.2 if name == OURS else 1.4)
            axes.fill_between(xs, lows, highs, color=colour, alpha=0.1, linewidth=0)
            labels.append((xs[-1], ys[-1], f"{name}, {count} rows", colour))
        for (name, count), points in series_of(entries, "local", ranks).items():
            if name == OURS and count == 64:
                xs, ys, _, _ = zip(*points)
                axes.plot(xs, ys, color=MUTED, linestyle=(0, (1, 2)))
                labels.append((xs[-1], ys[-1], "BatchNorm alone", MUTED))
        whole_numbers(axes, sorted({entry["case"]["features"] for entry in here}))
        decades(axes.yaxis, time_text)
    for axes, labels in labels_of.items():
        label_lines(axes, labels, size=8.5)
    panels[0][0].set_ylabel("forward and backward")
    return figure


def series_of(entries, measure, ranks):
    """(contender, rows) -> [(features, value, low, high)]"""
    found = {}
    for entry in entries:
        case = entry["case"]
        if entry["measure"] == measure and case["ranks"] == ranks:
            found.setdefault((entry["contender"], case["rows"]), []).append(
                (case["features"], entry["value"], entry["low"], entry["high"]))
    return {key: sorted(points) for key, points in found.items()}


def way_of(case):
    """How a network is trained: type and images."""
    times = f"{case['accumulation steps']} × " if case["accumulation steps"] > 1 else ""
    return f"{case['type']}, {times}{case['images per rank']} images per rank"


def speed(entries, limits, log):
    """A panel for each network, a group of rows for each way of training it, and what the cores' peak allows."""
    here = [entry for entry in entries if entry["measure"] == "speed"]
    module = pyplot(log) if here else None
    if module is None:
        return None
    networks = {}  # {network: {way: {contender: figure}}}
    for entry in here:
        of_way = networks.setdefault(entry["case"]["network"], {}).setdefault(way_of(entry["case"]), {})
        of_way[entry["contender"]] = entry["value"], entry["low"], entry["high"]
    networks = {network: {way: {name: of_way[name] for name in STYLES if name in of_way} for way, of_way in ways.items()}
                for network, ways in networks.items()}
    figure, panels = module.subplots(1, len(networks), figsize=(WIDTH, height(*networks.values())), squeeze=False)
    for axes, (network, ways) in zip(panels[0], networks.items()):
        headings = rows(axes, ways, bar, lambda value: f"{value:,.0f}")
        axes.set(title=f"{network} on 2 ranks", xlabel="images per second")
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        for way, place in headings.items():
            limit = limits.get((network, way.partition(",")[0]))
            if limit:
                axes.vlines(limit, place + 0.5, place + len(ways[way]) + 0.5, color=MUTED, linestyle=(0, (4, 2)))
                axes.annotate("cores' peak (direct)", (limit, place), ha="center", va="center", fontsize=8, color=MUTED)
    return figure


def accuracy(results, shown, log):
    """A panel for each configuration: top-1 by epochs. `results`: ((configuration,), contender) -> results."""
    module = pyplot(log) if results else None
    if module is None:
        return None
    configurations = list(dict.fromkeys(config for (config,), _ in results))
    figure, panels = module.subplots(1, len(configurations), figsize=(WIDTH, 3.2), sharey=True, squeeze=False)
    for axes, config in zip(panels[0], configurations):
        here = {shown.get(name, name): [result["top1"] for result in of_name]
                for ((of_config,), name), of_name in results.items() if of_config == config}
        most = 1
        for place, (name, top1) in enumerate(sorted(here.items(), key=lambda pair: pair[0] != OURS)):
            curves, (colour, marker) = list(zip(*top1)), STYLES[name]
            most = max(most, len(curves))
            # Side by side where there is one epoch only.
            epochs = [1 + 0.05 * place] if len(curves) == 1 else range(1, len(curves) + 1)
            axes.plot(epochs, [statistics.median(values) for values in curves], color=colour, marker=marker,
                      label=f"{name}, {len(top1)} seeds", zorder=3 - place)
            axes.fill_between(epochs, [min(values) for values in curves], [max(values) for values in curves],
                              color=colour, alpha=0.15, linewidth=0)
            if len(curves) == 1:  # a band has no width there
                axes.vlines(epochs, min(curves[0]), max(curves[0]), color=colour)
        axes.set(title=config, xlabel="epoch", xlim=(0.7, most + 0.3))
        axes.set_xticks(range(1, most + 1))
        axes.legend(frameon=False, loc="lower right")
    panels[0][0].set(ylabel="top-1", ylim=(0, 1.06 * panels[0][0].get_ylim()[1]))
    return figure
