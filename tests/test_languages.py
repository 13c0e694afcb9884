"""Chinese pages say what the English ones say: the same commands, options, files and codes."""

import re

import pytest
from paths import ROOT

PAIRS = {ROOT / "README.zh-CN.md": ROOT / "README.md"} | {
    page: ROOT / "docs" / page.relative_to(ROOT / "docs" / "zh")
    for page in sorted((ROOT / "docs" / "zh").rglob("*.md"))
    if page.name not in ("index.md", "glossary.md")
}
BLOCK = re.compile(r"(?ms)^```(\w+)\n(.*?)^```$")


def code_blocks(text):
    """The blocks that a reader copies, without their comments."""
    return [
        re.sub(r"(?m) *#.*$", "", block).strip()
        for language, block in BLOCK.findall(text)
        if language in ("sh", "python")
    ]


def code_words(text):
    """What is set as code in the text: commands, options, files, codes."""
    return set(re.findall(r"`([^`\n]+)`", BLOCK.sub("", text)))


@pytest.mark.parametrize("page", PAIRS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_the_code_of_its_original(page):
    """Whoever reads one language can do what readers of the other can."""
    ours, original = page.read_text(), PAIRS[page].read_text()
    shown = code_blocks(original)
    assert [block for block in code_blocks(ours) if block not in shown] == []
    assert code_words(ours) - code_words(original) == set()
    if page.name != "README.zh-CN.md":
        assert code_blocks(ours) == shown
        assert code_words(original) - code_words(ours) == set()


def test_both_readmes_name_every_command():
    """A command that is added to one table is added to the other."""
    readmes = [(ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md")]
    first, second = (set(re.findall(r"`traceconv ([a-z-]+)`", text)) for text in readmes)
    assert first == second
    assert "merge" in first


def test_both_glossaries_have_the_same_terms():
    """Every English term of the glossary is translated."""
    english = re.findall(r"(?m)^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text())[1:]
    chinese = (ROOT / "docs/zh/glossary.md").read_text()
    translated = [row.split("|")[2].strip() for row in chinese.splitlines() if row.startswith("| ")]
    assert sorted(translated[1:]) == sorted(one for one in english if one != "---")
