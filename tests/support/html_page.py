"""What a page of a report consists of."""

from html.parser import HTMLParser

SECTIONS = (
    "overlap", "timeline", "findings", "operators", "idle_causes", "efficiency", "graphs",
    "communication", "steps", "heat", "links", "critical_path", "stages", "shape", "curves",
    "memory_at_peak", "missing", "clock", "issues", "ranks",
)  # fmt: skip
"""Those of a page with an analysis, in order; those without data are left out."""


class Reader(HTMLParser):
    """What a page consists of; every element must be closed by its own end."""

    VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.ids, self.text = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
