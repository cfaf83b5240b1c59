"""A header for doxygen, in whose words our comments mean what they say: the first is the file's, those behind a member
are the member's, a list "name      text" is one, and < > @ # are themselves."""

import re
import sys


def escaped(comment: re.Match) -> str:
    """Code stays as it is: between backticks, and what is indented."""
    if comment[2].startswith("     "):
        return comment[0]
    pieces = comment[2].split("`")
    for i in range(0, len(pieces), 2):
        pieces[i] = re.sub(r"([<>@#])", r"\\\1", pieces[i])
    return comment[1] + "`".join(pieces)


with open(sys.argv[1], encoding="utf-8") as header:
    text = header.read()
text = re.sub(r"([;,][ \t]*)/\* ", r"\1/**< ", text)
text = re.sub(r"^///   (\S+(?:, \S+)*) {2,}(?=\S)", r"/// - `\1`: ", text, flags=re.M)
text = re.sub(r"^/// {20,}(?=\S)", r"///   ", text, flags=re.M)
sys.stdout.write("/// \\file\n" + re.sub(r"(///<?)(?!/)([^\n]*)", escaped, text))
