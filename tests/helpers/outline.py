"""A page as a browser's parser sees it, and that it stands alone."""

from html.parser import HTMLParser

VOID = {"meta", "link", "img"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "style"}


class Outline(HTMLParser):
    """Tags, attributes and text, as a browser's parser sees them; every tag must close where it should."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.attributes, self.text, self._open = [], [], "", []
        self.feed(content)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def values(self, tag, name):
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


def assert_stands_alone(content):
    outline = Outline(content)
    assert not {"script", "iframe", "object", "embed", "base", "form", "audio", "video"} & set(outline.tags)
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    for tag, name, value in outline.attributes:
        if name in LOADING:
            assert value.startswith(("data:", "#")), (tag, name, value[:80])
    assert "@import" not in content
    assert "url(" not in content
    assert outline.values("meta", "content")[0].startswith(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    )
    return outline
