"""The report as one HTML page that needs nothing beside it, and the same page as PDF."""
import base64
import html
import os
import shutil
import subprocess

from . import plots
from .blocks import Code, Plot, Table, Text

SHORT = 12  # rows of a table that stay on one page
LONG = 24  # letters of a cell that may be broken
FOLDER = os.path.dirname(os.path.abspath(__file__))


def text_of(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def cell(tag, value, is_text):
    """A number's spread, and what follows a line break in a heading, are set smaller; commands break between words."""
    if isinstance(value, Code):
        inner = "<code>" + " ".join(f"<span>{html.escape(word)}</span>" for word in value.text.split()) + "</code>"
    elif tag == "td" and is_text:
        inner = html.escape(value)
    else:
        main, sign, small = value.partition("\n" if tag == "th" else " (")
        inner = html.escape(main) + (f" <small>{html.escape(sign.strip() + small)}</small>" if sign else "")
    kind = "" if not is_text else ' class="text"' if len(str(value)) > LONG else ' class="text whole"'
    return f"<{tag}{kind}>{inner}</{tag}>"


def table(block):
    def row(tag, values):
        return "<tr>" + "".join(cell(tag, value, index < block.text_columns) for index, value in enumerate(values)) + "</tr>"

    command = f" <code>{html.escape(block.command)}</code>" if block.command else ""
    length = "short" if len(block.rows) <= SHORT else "long"
    return (f'<figure class="table {length}"><figcaption>{html.escape(block.caption)}{command}</figcaption>'
            f'<div class="scroll"><table><thead>{row("th", block.head)}</thead>'
            f"<tbody>{''.join(row('td', values) for values in block.rows)}</tbody></table></div></figure>\n")


def picture(block, for_page):
    drawn = plots.svg(block.figure, for_page)
    if not for_page:
        drawn = f'<img class="plot" src="data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}">'
    width = block.figure.get_figwidth()
    return (f'<figure class="drawn" style="max-width: {width * 5.6:.0f}rem">{drawn}'
            f"<figcaption>{html.escape(block.caption)}</figcaption></figure>\n")


def block_html(block, for_page):
    if isinstance(block, Table):
        return table(block)
    if isinstance(block, Plot):
        return picture(block, for_page)
    if isinstance(block, Code):
        return f"<pre>{html.escape(block.text)}</pre>\n"
    assert isinstance(block, Text)
    return block.html + "\n"


def missing_html(lines):
    if not lines:
        return ""
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f'<div class="missing">Missing here:<ul>{items}</ul></div>\n'


def render(title, subtitle, missing, sections, for_page):
    """`sections`: [(name, title, what is missing in it, its blocks)]"""
    parts = [f"<h1>{html.escape(title)}</h1>\n<p class=muted>{html.escape(subtitle)}</p>\n", "<nav>"]
    parts += [f'<a href="#{name}">{html.escape(heading)}</a> ' for name, heading, _, _ in sections]
    parts += ["</nav>\n", missing_html(missing)]
    for name, heading, lines, blocks in sections:
        parts.append(f'<section id="{name}"><h2>{html.escape(heading)}</h2>\n{missing_html(lines)}')
        parts += [block_html(block, for_page) for block in blocks if block is not None]
        parts.append("</section>\n")
    script = f"<script>\n{text_of('page.js')}</script>\n" if for_page else ""
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta name="color-scheme" content="light dark">\n<style>\n{text_of("page.css")}</style></head>\n<body>\n'
            + "".join(parts) + script + "</body></html>\n")


class NoPdf(Exception):
    """Why there is none."""


def pdf(make_page):
    """The page that make_page() returns, as PDF. Raises NoPdf."""
    if not shutil.which("weasyprint"):
        raise NoPdf("weasyprint is not installed")
    try:
        done = subprocess.run(["weasyprint", "--quiet", "-", "-"], input=make_page().encode(), capture_output=True,
                              timeout=300, check=False)
    except subprocess.TimeoutExpired:
        raise NoPdf("weasyprint was not done after 300 s") from None
    if done.returncode != 0 or not done.stdout.startswith(b"%PDF"):
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise NoPdf(f"weasyprint: {lines[-1] if lines else 'no message'}")
    return done.stdout
