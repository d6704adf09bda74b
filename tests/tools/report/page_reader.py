"""Reads a report's page as a browser would, as far as tests care."""
import html.parser

VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(html.parser.HTMLParser):
    """text; missing: the lines of the boxes that say so; open_tags: what was not closed in order; outside: addresses
    of anything that the page would load from elsewhere."""

    def __init__(self, path):
        super().__init__()
        self.text, self.missing, self.open_tags, self.outside = "", [], [], []
        self.tags, self.sections = [], []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())
        self.close()
        self.open_tags += self.tags

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith(("#", "data:")):
                self.outside.append(value)
            if tag == "section" and name == "id":
                self.sections.append(value)
        if tag not in VOID:
            self.tags.append(tag)
        if tag == "li":
            self.missing.append("")

    def handle_endtag(self, tag):
        if self.tags and self.tags[-1] == tag:
            self.tags.pop()
        else:
            self.open_tags.append("/" + tag)

    def handle_data(self, data):
        self.text += data
        if "li" in self.tags:
            self.missing[-1] += data
