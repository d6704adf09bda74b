"""Plots of the section on GPUs."""
from compare.style import MUTED, STYLES, WIDTH, decades, pyplot, time_text

from .plots import dot, ranks_text

BOUND = "memory bandwidth"  # the contender that is a limit: the time that the bytes which must move take


def batch_norm(entries, log):
    """A panel for each number of ranks: time by shape, a marker for each contender, a dash for the bound."""
    module = pyplot(log) if entries else None
    if module is None:
        return None
    worlds = sorted({entry["case"]["ranks"] for entry in entries})
    shapes = list(dict.fromkeys(entry["case"]["shape"] for entry in entries))
    names = list(dict.fromkeys(entry["contender"] for entry in entries))
    figure, panels = module.subplots(1, len(worlds), figsize=(WIDTH, 1.4 + 0.22 * len(shapes)), sharey=True, squeeze=False)
    for axes, ranks in zip(panels[0], worlds):
        for entry in entries:
            place, value = shapes.index(entry["case"]["shape"]), entry["value"]
            if entry["case"]["ranks"] != ranks:
                continue
            if entry["contender"] == BOUND:
                axes.plot([value], [place], marker="|", markersize=12, markeredgewidth=2.5, color=MUTED, linestyle="")
            else:
                dot(axes, place, STYLES[entry["contender"]], value,
                    [[max(value - entry["low"], 0)], [max(entry["high"] - value, 0)]])
        axes.set(xscale="log", title=ranks_text(ranks), xlabel="forward and backward")
        decades(axes.xaxis, time_text)
    first = panels[0][0]
    first.set_yticks(range(len(shapes)), shapes)
    first.invert_yaxis()
    styles = {name: (MUTED, "|") if name == BOUND else STYLES[name] for name in names}
    # Of the axes, as only those make room for it; short times stand below, so that there is some.
    first.legend(handles=[module.Line2D([], [], marker=marker, color=colour, linestyle="", label=name)
                          for name, (colour, marker) in styles.items()], loc="lower left", frameon=False)
    return figure
