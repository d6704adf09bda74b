"""Pictures of the section on GPUs."""
from compare import plots as bench_plots

COLOURS = {"dlaunch": "#D55E00", "PyTorch": "#0072B2"}
MARKERS = {"dlaunch": "o", "PyTorch": "s"}


def batch_norm(entries, log):
    """A panel for each number of ranks: time by shape, a marker for each contender, a dash for the bound."""
    module = bench_plots.pyplot(log) if entries else None
    if module is None:
        return None
    worlds = sorted({entry["case"]["ranks"] for entry in entries})
    shapes = list(dict.fromkeys(entry["case"]["shape"] for entry in entries))
    figure, panels = module.subplots(1, len(worlds), figsize=(6.6 * len(worlds), 1.6 + 0.24 * len(shapes)), sharey=True,
                                     squeeze=False)
    for axes, ranks in zip(panels[0], worlds):
        for entry in entries:
            if entry["case"]["ranks"] != ranks:
                continue
            place, name = shapes.index(entry["case"]["shape"]), entry["contender"]
            if name not in COLOURS:  # the bound
                axes.plot([entry["value"]], [place], marker="|", markersize=13, markeredgewidth=2.5,
                          color=bench_plots.LIMIT_COLOUR, linestyle="")
                continue
            axes.errorbar([entry["value"]], [place], xerr=[[max(entry["value"] - entry["low"], 0)],
                                                           [max(entry["high"] - entry["value"], 0)]],
                          marker=MARKERS[name], color=COLOURS[name], linestyle="", markersize=6)
        axes.set(xscale="log", title=f"{ranks} rank" + "s" * (ranks > 1), xlabel="forward and backward, µs")
    panels[0][0].set_yticks(range(len(shapes)), shapes)
    panels[0][0].invert_yaxis()
    handles = [module.Line2D([], [], marker=MARKERS[name], color=colour, linestyle="", label=name)
               for name, colour in COLOURS.items()]
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    return figure
