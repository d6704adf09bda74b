"""What all plots have in common, where matplotlib is installed (python3-matplotlib): its settings, the contenders'
colours, panels, axes, and names at the ends of lines."""
import functools

# Inches, of every plot. README.md and the page show it at about its own size, the PDF at 87 %: letters stay readable.
WIDTH = 8.4
# Okabe and Ito's colours, which colour-blind readers tell apart; markers differ too.
ORANGE, AMBER, SKY, BLUE, GREEN, PINK = "#D55E00", "#E69F00", "#56B4E9", "#0072B2", "#009E73", "#CC79A7"
STYLES = {
    "dlaunch": (ORANGE, "o"), "dlaunch ring": (AMBER, "v"), "dlaunch butterfly": (SKY, "P"), "dlaunch, Winograd": (AMBER, "v"),
    "Open MPI": (BLUE, "s"), "Open MPI tcp": (BLUE, "s"), "MPICH": (GREEN, "^"), "Hydra": (GREEN, "^"), "Gloo": (PINK, "D"),
    "Python on Gloo": (PINK, "D"), "torchrun": (PINK, "D"), "PyTorch": (PINK, "D"), "PyTorch channels_last": (BLUE, "s"),
    "PyTorch DDP": (BLUE, "s"),
}
MUTED = "#666666"  # limits, whiskers, and what is no figure


@functools.cache
def tell_once(log):
    log("no plots: install python3-matplotlib")


def pyplot(log):
    """matplotlib.pyplot with our settings; None, and one line to `log`, where it is not installed."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot as module
    except ImportError:
        tell_once(log)
        return None
    module.rcParams.update({"font.size": 9.5, "axes.titlesize": 10.5, "figure.titlesize": 10.5, "axes.spines.top": False,
                            "axes.spines.right": False, "axes.grid": True, "grid.color": "#E6E6E6", "axes.axisbelow": True,
                            "figure.constrained_layout.use": True, "savefig.dpi": 200, "savefig.facecolor": "white"})
    return module


def panels(module, count, height):
    """(figure, axes) of so many panels of that height, two in a row. An odd last one is as wide as two: no place is
    empty."""
    places = [[index, min(index + 1, count - 1)] for index in range(0, count, 2)]
    figure, axes = module.subplot_mosaic(places, figsize=(WIDTH, height * len(places)))
    return figure, [axes[index] for index in range(count)]


def time_text(microseconds):
    """Three digits and the unit: 250 ns, 1.5 ms."""
    for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1)):
        if microseconds >= 0.9995 * size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds * 1e3:.3g} ns"


def count_text(count):
    """1k, 10M."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= size:
            return f"{count / size:g}{unit}"
    return f"{count:g}"


def decades(axis, text):
    """Has the powers of ten of a logarithmic axis written by text(value)."""
    from matplotlib import ticker
    axis.set_major_locator(ticker.LogLocator(numticks=12))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(ticker.NullFormatter())


def whole_numbers(axes, values):
    axes.set_xticks(values, [str(value) for value in values])
    axes.minorticks_off()


def apart(wanted, least, low, high):
    """Places as near as can be (in least squares) to the ascending ones that are wanted, `least` from each to the next,
    between `low` and `high`: the pool-adjacent-violators algorithm for places less what those below them take."""
    pools = []  # [sum, number] of neighbours that touch
    for index, place in enumerate(wanted):
        pools.append([place - index * least, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, number = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += number
    free = [total / number for total, number in pools for _ in range(number)]
    highest = high - (len(wanted) - 1) * least
    return [min(max(place, low), highest) + index * least for index, place in enumerate(free)]


def label_lines(axes, labels, size=9):
    """Names to the right of lines, each joined to the end of its own, apart where they would overlap. `labels`: [(x, y,
    name, colour)]. To be called when these axes, and those that they share one with, have all their lines."""
    axes.figure.draw_without_rendering()  # until then nobody knows how high they are
    to_axes = axes.transData + axes.transAxes.inverted()
    labels = sorted(labels, key=lambda label: label[1])
    line = 1.25 * size / (axes.get_window_extent().height * 72 / axes.figure.dpi)
    places = apart([to_axes.transform(label[:2])[1] for label in labels], line, line / 2, 1 - line / 2)
    for (x, y, name, colour), place in zip(labels, places):
        axes.annotate(name, (x, y), xytext=(1.03, place), textcoords="axes fraction", color=colour, va="center", fontsize=size,
                      annotation_clip=False, arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7,
                                                         "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 4})
