"""Plots that only the report has, and what its plots become: files and parts of the page."""
import io
import math
import re

from compare import launchers as launching
from compare.style import BLUE, MUTED, ORANGE, STYLES, WIDTH, decades, pyplot

from .blocks import ratio_texts

# What the page's style sheet says for both themes, by what matplotlib writes.
VARIABLES = {"#000000": "var(--ink)", "#e6e6e6": "var(--grid)", "#666666": "var(--muted)", "#ffffff": "var(--paper)"}
ROW = 0.2  # inches


def dot(axes, place, style, value, whiskers):
    axes.errorbar([value], [place], xerr=whiskers, color=style[0], marker=style[1], markersize=6, elinewidth=1.3)


def bar(axes, place, style, value, whiskers):
    axes.barh([place], [value], 0.78, xerr=whiskers, color=style[0], error_kw={"elinewidth": 1, "capsize": 2, "ecolor": MUTED})


def rows(axes, groups, draw, text):
    """A row for each contender of each group, below one for the group's heading, so that what is written beside a mark
    meets no other. `groups`: {heading: {contender: (value, low, high), or why there is none}}; `draw`: dot or bar;
    `text`: of a value. Returns {heading: its place}; rows are 1 apart, downwards."""
    names, places, headings = [], [], {}
    for heading, of_group in groups.items():
        headings[heading] = place = places[-1] + 1.4 if places else 0
        names.append(heading)
        places.append(place)
        for name, entry in of_group.items():
            place += 1
            names.append(name)
            places.append(place)
            beside = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 8.5,
                      "bbox": {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.6}}
            if isinstance(entry, str):
                axes.annotate(entry, (0, place), (4, 0), xycoords=("axes fraction", "data"), color=MUTED, **beside)
                continue
            value, low, high = entry
            draw(axes, place, STYLES[name], value, [[max(value - low, 0)], [max(high - value, 0)]])
            axes.annotate(text(value), (max(value, high), place), (5, 0), **beside)
    axes.set_yticks(places, names)
    axes.set_ylim(places[-1] + 0.7, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    for name, tick in zip(names, axes.get_yticklabels()):
        tick.set_fontweight("bold" if name in groups else "normal")
    return headings


def height(*panels):
    """Inches of the longest of panels of rows, with its title and axis."""
    return 0.8 + ROW * max(sum(len(of_group) + 1.4 for of_group in groups.values()) for groups in panels)


def launch_groups(entries, what, heading_of):
    """For rows(): the contenders of one of launching.SUBJECTS, also those that have no figure."""
    names = {name: shown for name, shown in launching.SHOWN.items()
             if any(entry["contender"] == shown for entry in entries)}
    figures = {}
    for entry in entries:
        if entry["measure"] == what:
            figures.setdefault(entry["case"]["ranks"], {})[entry["contender"]] = entry["value"], entry["low"], entry["high"]
    return {heading_of(ranks): {shown: of_world.get(shown) or launching.why_none(what, name, ranks) or "no figure"
                                for name, shown in names.items()} for ranks, of_world in figures.items()}


def ranks_text(ranks):
    return f"{ranks} rank" + "s" * (ranks > 1)


def launchers(entries, log):
    """Start-up by number of ranks, and what follows the death of a rank: rows of dots, on the same axis."""
    panels = {"/bin/true, start to end": launch_groups(entries, "true", ranks_text),
              "connect, barrier, end": launch_groups(entries, "barrier", ranks_text),
              "after a rank's death": {**launch_groups(entries, "kill", lambda ranks: f"{ranks} ranks, ended"),
                                       **launch_groups(entries, "restart", lambda ranks: f"{ranks} ranks, restarted")}}
    panels = {title: groups for title, groups in panels.items() if groups}
    module = pyplot(log) if panels else None
    if module is None:
        return None
    figure, axes_of = module.subplots(1, len(panels), figsize=(WIDTH, height(*panels.values())), sharex=True, squeeze=False)
    for axes, (title, groups) in zip(axes_of[0], panels.items()):
        axes.set(xscale="log", title=title, xlabel="milliseconds")
        rows(axes, groups, dot, lambda value: f"{value:.1f}" if value < 100 else f"{value:,.0f}")
        decades(axes.xaxis, lambda value: f"{value:,g}")
    return figure


def ratios(subjects, log):
    """A line of dots for each (name, values), around 1 on a logarithmic axis."""
    module = pyplot(log)
    if module is None:
        return None
    figure, axes = module.subplots(figsize=(WIDTH, 1 + 0.32 * len(subjects)))
    means = [math.exp(sum(map(math.log, values)) / len(values)) for _, values in subjects]
    for place, ((_, values), mean, text) in enumerate(zip(subjects, means, ratio_texts(means))):
        colour = ORANGE if mean > 1 else BLUE
        axes.plot(values, [place] * len(values), linestyle="", marker="o", markersize=5, color=colour, alpha=0.5,
                  markeredgewidth=0)
        axes.plot([mean], [place], linestyle="", marker="|", markersize=15, markeredgewidth=3, color=colour)
        axes.annotate(text, (1.07, place), xycoords=("axes fraction", "data"), va="center", ha="center")
    axes.annotate("geometric\nmean", (1.07, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", ha="center",
                  va="bottom", fontweight="bold")
    axes.axvline(1, color="#000000", linewidth=1)
    axes.set(xscale="log", xlabel="ours / best peer, in time or memory (left of 1 is better)")
    decades(axes.xaxis, lambda value: f"{value:g}")
    axes.set_yticks(range(len(subjects)), [name for name, _ in subjects])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    return figure


def png(figure):
    """The picture on white, as bytes."""
    target = io.BytesIO()
    figure.savefig(target, format="png")
    return target.getvalue()


def svg(figure, for_page):
    """The picture as text. For the page letters stay letters and colours follow the theme; else letters are drawn."""
    from matplotlib import rc_context
    target = io.StringIO()
    # With a salt of its own the same picture has the same text each time.
    with rc_context({"svg.fonttype": "none" if for_page else "path", "svg.hashsalt": "dlaunch"}):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
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
