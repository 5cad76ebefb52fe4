"""tests/e2e/lib/blocks.py: the code blocks of a document: Markdown's fences, reStructuredText's code-block and `::`,
and programs in plain text. Standard library only."""

import re


class Block:
    """One block: where it begins (line, from 1), its language as the document names it, its text."""

    def __init__(self, document, line, language, text):
        self.document, self.line, self.language, self.text = document, line, language, text

    @property
    def name(self):
        return f"{self.document}:{self.line} {self.language}"


def markdown(document, lines):
    """A fence is three backquotes or more at the start of a line; the next such line ends it, also with a word after
    it."""
    blocks, begin, language = [], None, ""
    for number, line in enumerate(lines, 1):
        fence = re.match(r"\s*```+\s*(\S*)", line)
        if fence and begin is None:
            begin, language = number, fence[1]
        elif fence:
            blocks.append(Block(document, begin, language, "\n".join(lines[begin:number - 1]) + "\n"))
            begin = None
    if begin is not None:
        raise ValueError(f"{document}:{begin}: the block has no end")
    return blocks


def restructured(document, lines):
    """The indented lines below `.. code-block:: LANGUAGE`, or below a paragraph that ends in `::`."""
    blocks, number = [], 0
    while number < len(lines):
        line = lines[number]
        number += 1
        directive = re.match(r"\.\. code-block:: (\w+)", line)
        if not directive and (line.startswith("..") or not line.rstrip().endswith("::")):
            continue
        begin, inside = number, []
        while number < len(lines) and (not lines[number].strip() or lines[number].startswith(" ")):
            inside.append(lines[number])
            number += 1
        indents = [len(text) - len(text.lstrip()) for text in inside if text.strip()]
        if indents:
            text = "\n".join(text[min(indents):] for text in inside).strip("\n") + "\n"
            blocks.append(Block(document, begin, directive[1] if directive else "literal", text))
    return blocks


def plain_c(document, lines):
    """From the first #include at a line's begin to the last closing brace at one."""
    first = next((number for number, line in enumerate(lines) if line.startswith("#include")), None)
    if first is None:
        return []
    last = max(number for number, line in enumerate(lines) if line.startswith("}"))
    return [Block(document, first + 1, "c", "\n".join(lines[first:last + 1]) + "\n")]


def of(path):
    lines = path.read_text().splitlines()
    if path.suffix == ".rst":
        return restructured(path.name, lines)
    return markdown(path.name, lines) or plain_c(path.name, lines)
