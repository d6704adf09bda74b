"""Pictures that only the report has. The others are those of compare/plots.py, whose colours and markers hold here too."""
import io
import math
import re

from compare import plots as bench_plots

from .blocks import ratio_text

COLOURS = {"dlaunch": "#D55E00", "openmpi": "#0072B2", "hydra": "#009E73", "torchrun": "#CC79A7"}
SHOWN = {"openmpi": "Open MPI", "hydra": "Hydra"}
# What the page's style sheet says for both themes, by what matplotlib writes.
VARIABLES = {"#000000": "var(--ink)", "#e6e6e6": "var(--grid)", "#666666": "var(--muted)", "#ffffff": "var(--paper)"}


def bars(axes, groups, names, colours, unit, logarithmic=True):
    """Groups of bars with whiskers. `groups`: {label: {name: (value, low, high)}}."""
    width = 0.8 / max(len(names), 1)
    for index, name in enumerate(names):
        places = [(place, of_group[name]) for place, of_group in enumerate(groups.values()) if name in of_group]
        if not places:
            continue
        xs = [place + (index - (len(names) - 1) / 2) * width for place, _ in places]
        values = [entry[0] for _, entry in places]
        whiskers = [[max(value - low, 0) for value, low, _ in (entry for _, entry in places)],
                    [max(high - value, 0) for value, _, high in (entry for _, entry in places)]]
        axes.bar(xs, values, width * 0.92, yerr=whiskers, color=colours[name], label=SHOWN.get(name, name),
                 error_kw={"elinewidth": 1, "capsize": 2, "ecolor": "#666666"})
        for x, value, high in zip(xs, values, (entry[2] for _, entry in places)):
            axes.annotate(label(value), (x, max(value, high)), xytext=(0, 3), textcoords="offset points", ha="center",
                          fontsize=7.5)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.grid(axis="x", visible=False)
    if logarithmic:
        axes.set_yscale("log")
    axes.set_ylabel(unit)


def label(value):
    return f"{value:,.0f}" if value >= 20 else f"{value:.2g}"


def launchers(entries, log):
    """Start-up by number of ranks, and what follows the death of a rank."""
    module = bench_plots.pyplot(log) if entries else None
    if module is None:
        return None
    names = [name for name in COLOURS if any(entry["contender"] == name for entry in entries)]
    panels = [("true", "/bin/true, start to end"), ("barrier", "connect, barrier, end"), ("death", "after a rank's death")]
    figure, axes_of = module.subplots(1, 3, figsize=(12.4, 4.2), gridspec_kw={"width_ratios": [3, 3, 2]})
    for axes, (what, title) in zip(axes_of, panels):
        groups = {}
        for entry in entries:
            group = {"kill": "job ended", "restart": "all restarted"}.get(entry["measure"]) if what == "death" else (
                f"{entry['case']['ranks']} rank" + "s" * (entry["case"]["ranks"] > 1)
                if entry["measure"] == what else None)
            if group:
                groups.setdefault(group, {})[entry["contender"]] = (entry["value"], entry["low"], entry["high"])
        axes.set_title(title, fontsize=11)
        if groups:
            bars(axes, groups, names, COLOURS, "ms" if what == "true" else "")
        else:
            axes.set_axis_off()
    handles, labels = axes_of[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(names), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    return figure


def ratios(rows, log):
    """A line of dots for each (name, values), around 1 on a logarithmic axis."""
    module = bench_plots.pyplot(log)
    if module is None:
        return None
    figure, axes = module.subplots(figsize=(9.5, 0.8 + 0.42 * len(rows)))
    for place, (_, values) in enumerate(rows):
        mean = math.exp(sum(map(math.log, values)) / len(values))
        colour = COLOURS["dlaunch"] if mean > 1 else COLOURS["openmpi"]
        axes.plot(values, [place] * len(values), linestyle="", marker="o", markersize=5, color=colour, alpha=0.5,
                  markeredgewidth=0)
        axes.plot([mean], [place], linestyle="", marker="|", markersize=17, markeredgewidth=3, color=colour)
        axes.annotate(ratio_text(mean), (1, place), xycoords=("axes fraction", "data"), xytext=(8, 0),
                      textcoords="offset points", va="center", fontsize=9)
    axes.axvline(1, color="#000000", linewidth=1)
    axes.set(xscale="log", xlabel="ours / best peer")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    figure.tight_layout(rect=(0, 0, 0.96, 1))
    return figure


def png(figure):
    """The picture on white, as bytes; the figure is closed."""
    from matplotlib import pyplot
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=110, facecolor="white")
    pyplot.close(figure)
    return target.getvalue()


def svg(figure, for_page):
    """The picture as text; the figure is closed. For the page letters stay letters and colours follow the theme; else letters are drawn."""
    from matplotlib import pyplot
    target = io.StringIO()
    with pyplot.rc_context({"svg.fonttype": "none" if for_page else "path"}):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = target.getvalue()
    text = text[text.index("<svg"):]
    if not for_page:
        return text
    text = re.sub(r' id="(figure|axes|patch|line2d|text|xtick|ytick|legend|matplotlib\.axis|PathCollection|'
                  r'FillBetweenPolyCollection|PolyCollection|LineCollection)_\d+"', "", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    # Letters without a colour are black there.
    return text.replace("<svg ", '<svg class="plot" fill="var(--ink)" ', 1)
