"""Pictures of the sections on training and on SyncBatchNorm."""
import statistics

from compare import plots as bench_plots

from .plots import bars

COLOURS = {"dlaunch": "#D55E00", "dlaunch winograd": "#E69F00", "PyTorch": "#CC79A7", "PyTorch channels_last": "#0072B2"}


def batch_norm(entries, log):
    """A panel for each number of workers: time by features, a pair of lines for each contender."""
    here = [entry for entry in entries if entry["measure"] == "time"]
    module = bench_plots.pyplot(log) if here else None
    if module is None:
        return None
    worlds = sorted({entry["case"]["ranks"] for entry in here})
    figure, panels = module.subplots(1, len(worlds), figsize=(6.2 * len(worlds), 4.3), sharey=True, squeeze=False)
    for axes, ranks in zip(panels[0], worlds):
        axes.set(xscale="log", yscale="log", title=f"{ranks} workers", xlabel="features")
        labels = []
        for (name, rows), points in series_of(entries, "time", ranks).items():
            ours = name == "dlaunch"
            colour = COLOURS["dlaunch"] if ours else COLOURS["PyTorch channels_last"]
            xs, ys = [point[0] for point in points], [point[1] for point in points]
            axes.plot(xs, ys, color=colour, marker="o" if ours else "s", markersize=5,
                      linestyle="-" if rows == 64 else "--", linewidth=2.2 if ours else 1.4)
            axes.fill_between(xs, [point[2] for point in points], [point[3] for point in points], color=colour, alpha=0.1,
                              linewidth=0)
            labels.append((xs[-1], ys[-1], f"{'dlaunch' if ours else 'Python'}, {rows} rows", colour))
        for (name, rows), points in series_of(entries, "local", ranks).items():
            if name == "dlaunch" and rows == 64:
                xs, ys = [point[0] for point in points], [point[1] for point in points]
                axes.plot(xs, ys, color=bench_plots.LIMIT_COLOUR, linestyle=(0, (1, 2)))
                labels.append((xs[-1], ys[-1], "BatchNorm alone", bench_plots.LIMIT_COLOUR))
        bench_plots.show_whole_numbers(axes, sorted({entry["case"]["channels"] for entry in here}))
        bench_plots.label_lines(axes, labels)
    panels[0][0].set_ylabel("forward and backward, µs")
    figure.tight_layout(w_pad=7, rect=(0, 0, 0.9, 1))
    return figure


def series_of(entries, measure, ranks):
    """(contender, rows) -> [(features, value, low, high)]"""
    found = {}
    for entry in entries:
        case = entry["case"]
        if entry["measure"] == measure and case["ranks"] == ranks:
            found.setdefault((entry["contender"], case["rows"]), []).append(
                (case["channels"], entry["value"], entry["low"], entry["high"]))
    return {key: sorted(points) for key, points in found.items()}


def speed(entries, limits, log):
    """A panel for each network, a group of bars for each way of training it, and what the cores' peak allows."""
    here = [entry for entry in entries if entry["measure"] == "speed"]
    module = bench_plots.pyplot(log) if here else None
    if module is None:
        return None
    networks = list(dict.fromkeys(entry["case"]["network"] for entry in here))
    groups = {network: {} for network in networks}
    for entry in here:
        case = entry["case"]
        steps = f"{case['accumulation']} micro-batch" + "es" * (case["accumulation"] > 1)
        groups[case["network"]].setdefault(f"{case['precision']}\n{steps}", {})[entry["contender"]] = (
            entry["value"], entry["low"], entry["high"])
    names = [name for name in COLOURS if any(entry["contender"] == name for entry in here)]
    figure, panels = module.subplots(1, len(networks), figsize=(12.4, 4.4), squeeze=False, gridspec_kw={
        "width_ratios": [max(len(groups[network]), 1) for network in networks]})
    for axes, network in zip(panels[0], networks):
        bars(axes, groups[network], names, COLOURS, "images/s", logarithmic=False)
        axes.set_title(network, fontsize=11)
        for place, group in enumerate(groups[network]):
            limit = limits.get((network, group.partition("\n")[0]))
            if limit:
                axes.hlines(limit, place - 0.45, place + 0.45, color=bench_plots.LIMIT_COLOUR, linestyle=(0, (4, 2)))
                axes.annotate("cores' peak", (place + 0.45, limit), xytext=(0, 3), textcoords="offset points",
                              ha="right", fontsize=8, color=bench_plots.LIMIT_COLOUR)
    handles = {text: handle for axes in panels[0] for handle, text in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=len(handles), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    return figure


def accuracy(results, shown, log):
    """A panel for each configuration: top-1 by epochs. `results`: ((configuration,), contender) -> results."""
    module = bench_plots.pyplot(log) if results else None
    if module is None:
        return None
    configurations = list(dict.fromkeys(config for (config,), _ in results))
    figure, panels = module.subplots(1, len(configurations), figsize=(6.2 * len(configurations), 4.2), squeeze=False)
    for axes, config in zip(panels[0], configurations):
        for (of_config,), name in results:
            if of_config != config:
                continue
            curves = list(zip(*(result["top1"] for result in results[((config,), name)])))
            label = shown.get(name, name)
            # Side by side where there is one epoch only.
            epochs = [1 + 0.05 * list(COLOURS).index(label)] if len(curves) == 1 else range(1, len(curves) + 1)
            axes.plot(epochs, [statistics.median(values) for values in curves], color=COLOURS[label], marker="o",
                      label=f"{label}, {len(curves[0])} seeds")
            axes.fill_between(epochs, [min(values) for values in curves], [max(values) for values in curves],
                              color=COLOURS[label], alpha=0.15, linewidth=0)
            if len(curves) == 1:  # a band has no width there
                axes.vlines(epochs, min(curves[0]), max(curves[0]), color=COLOURS[label])
        most = max(len(result["top1"]) for key, of_run in results.items() if key[0] == (config,) for result in of_run)
        axes.set(title=config, xlabel="epoch", ylabel="top-1", xlim=(0.7, most + 0.3),
                 ylim=(0, 1.06 * axes.get_ylim()[1]))
        axes.set_xticks(range(1, most + 1))
        axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    return figure
