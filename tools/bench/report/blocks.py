"""What a section of the report is made of, before it is written as HTML: text, tables, plots, and figures."""
import dataclasses
import html
import math
import statistics


OURS = "dlaunch"  # what is chosen by default; others of ours have longer names that begin so


@dataclasses.dataclass
class Text:
    html: str


@dataclasses.dataclass
class Code:
    text: str


@dataclasses.dataclass
class Table:
    caption: str
    head: list  # a heading for each column; what follows a line break in it is a remark
    rows: list  # of lists of text, or Code
    command: str = ""  # that makes it again
    text_columns: int = 1  # from the left; the others are numbers


@dataclasses.dataclass
class Plot:
    caption: str
    figure: object  # of matplotlib


def paragraph(text):
    return Text(f"<p>{html.escape(text)}</p>")


def figure(section, measure, case, contender, unit, values, better="lower", low=None, high=None):
    """A figure of results.json. `values`: one per round; the spread is theirs unless it is known better."""
    return {"section": section, "measure": measure, "case": case, "contender": contender, "unit": unit,
            "better": better, "value": statistics.median(values), "low": min(values) if low is None else low,
            "high": max(values) if high is None else high, "rounds": len(values)}


def quantile(values, fraction):
    ascending = sorted(values)
    position = fraction * (len(ascending) - 1)
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (position - below)


def decimals(value, digits):
    """How many a number has behind its point if it is written with so many digits."""
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


def shared_decimals(entries):
    """Those that a column of figures has in all its rows: enough to write the largest with three digits, and no more
    than any figure needs. None if that leaves fewer than two digits to the least."""
    values = [abs(entry["value"]) for entry in entries if entry["value"]] or [0]
    shared = decimals(max(values), 3)
    if decimals(min(values), 2) > shared:
        return None
    shown = [entry[key] for entry in entries for key in ("value", "low", "high")]
    while shared and all(round(value, shared) == round(value, shared - 1) for value in shown):
        shared -= 1
    return shared


def with_spread(entry, places):
    """A figure's text; `places`: behind the point."""
    def text(value):
        return "0" if value == 0 else f"{value:.1e}" if abs(value) < 1e-3 else f"{value:,.{places}f}"

    value, low, high = (text(entry[key]) for key in ("value", "low", "high"))
    return value if low == value == high else f"{value} ({low}–{high})"


def column_texts(entries):
    """A column of figures: all with the same decimals, or, where they are too far apart for that, each with three digits
    but no more than three decimals."""
    shared = shared_decimals(entries)
    return [with_spread(entry, min(decimals(entry["value"], 3), 3) if shared is None else shared) for entry in entries]


def ratio_texts(values):
    """A column of ratios, of which None is a dash: two decimals in all rows, three if two would change one by more than a
    twentieth."""
    here = [value for value in values if value is not None]
    places = 2 if all(abs(round(value, 2) - value) <= 0.05 * value for value in here) else 3
    return ["–" if value is None else f"{value:.{places}f}" for value in values]


def table_of(figures, measure, keys, caption, command, ours=OURS):
    """A row for each case, a column for each contender, ours first, and `ours` by the best of those that are not ours,
    unless it is None. `keys`: those of a case, which are headings too. None without figures of that measure."""
    here = [entry for entry in figures if entry["measure"] == measure]
    if not here:
        return None
    names = sorted(dict.fromkeys(entry["contender"] for entry in here), key=lambda name: not name.startswith(OURS))
    cells = {}
    for entry in here:
        cells.setdefault(tuple(entry["case"][key] for key in keys), {})[entry["contender"]] = entry
    columns = [[f"{value:,}" if isinstance(value, int) else str(value) for value in values] for values in zip(*cells)]
    for name in names:
        texts = iter(column_texts([of_case[name] for of_case in cells.values() if name in of_case]))
        columns.append([next(texts) if name in of_case else "–" for of_case in cells.values()])
    head, better = [*keys, *names], here[0]["better"]
    if ours in names and better and any(not name.startswith(OURS) for name in names):
        columns.append(ratio_texts([ratio(of_case, ours) for of_case in cells.values()]))
        head.append(("ours / best peer" if better == "lower" else "best peer / ours") + "\nless is better")
    units = {entry["unit"] for entry in here}
    unit = f"{units.pop()}; " if len(units) == 1 and "" not in units else ""
    direction = {"lower": "; less is better", "higher": "; more is better", None: ""}[better]
    return Table(f"{caption} ({unit}median and spread{direction})", head, [list(row) for row in zip(*columns)], command,
                 text_columns=sum(isinstance(value, str) for value in next(iter(cells))))


def ratio(of_case, ours=OURS):
    """The contender `ours` by the best of those that are not ours, upside down where more is better, so that less than 1
    is always for us; None where there are not both."""
    peers = [entry["value"] for name, entry in of_case.items() if not name.startswith(OURS)]
    if ours not in of_case or not peers:
        return None
    own, lower = of_case[ours]["value"], of_case[ours]["better"] == "lower"
    over, under = (own, min(peers)) if lower else (max(peers), own)
    return over / under if under else None


def case_text(case):
    """A case as people say it: 2 ranks, 1,000 elements."""
    return ", ".join(f"{value:,} {key[:-1] if value == 1 and key.endswith('s') else key}" if isinstance(value, int) else
                     str(value) for key, value in case)


def command_of(document, section):
    """What measures a section again, and draws its tables."""
    return f"tools/report OUT_DIR --only {section}" + (" --quick" if document["mode"] == "quick" else "")
