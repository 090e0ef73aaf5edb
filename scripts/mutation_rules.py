"""Which mistakes scripts/mutate can make in a source: rules over its text, since clang-format fixes how code is spelled.

A Mutant replaces text[start:end]. Rules look at the text without comments, literals of text and preprocessor lines, of the same
length, so that places in both are the same. A rule may write what does not compile; that is then no mutant.
"""

import bisect
import dataclasses
import pathlib
import random
import re

# What a statement begins with that is no call and no assignment.
KEYWORDS = {"return", "throw", "if", "else", "for", "while", "do", "switch", "case", "default", "break", "continue", "goto", "using",
            "namespace", "template", "class", "struct", "enum", "union", "public", "private", "protected", "friend", "typedef",
            "static_assert", "auto", "const", "constexpr", "static", "extern", "inline", "delete", "new", "co_return", "try", "catch"}
# Statements that only say something to a person or only ask for memory early.
WITHOUT_EFFECT = re.compile(r"\b(log::(?:debug|info|warning|error)|reserve|shrink_to_fit)\(")
NO_CODE = re.compile(r"^\s*(?:static_assert|template\b|using\b|friend\b|enum\b|TRAINYARD_EXPORT|namespace\b)")


@dataclasses.dataclass(frozen=True)
class Mutant:
    rule: str
    start: int
    end: int
    new: str

    def apply(self, text):
        return text[:self.start] + self.new + text[self.end:]

    def line(self, text):
        """Its first line that differs, counted from 1."""
        return text.count("\n", 0, self.start) + 1

    def lines(self, text):
        """(the lines that it changes, what they become), each without outer spaces and with a single space for a line's end"""
        begin = text.rfind("\n", 0, self.start) + 1
        end = text.find("\n", self.end)
        end = len(text) if end < 0 else end
        old, new = text[begin:end], text[begin:self.start] + self.new + text[self.end:end]
        return " ".join(old.split()), " ".join(new.split())


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_of(text):
    """The text with comments, preprocessor lines and what stands between quotes made blank."""
    literal = re.compile(
        r'R"(?P<delimiter>[^(\s]*)\((?:.|\n)*?\)(?P=delimiter)"|//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'')

    def without(match):
        found = match.group(0)
        if found.startswith("/"):
            return blank(match)
        return '"' + re.sub(r"[^\n]", "_", found[1:-1]) + '"'  # still a value

    text = literal.sub(without, text)
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", blank, text, flags=re.M)


def closing(code, start):
    """The place of the bracket that closes the one at start, or -1."""
    depth = 0
    for place in range(start, len(code)):
        if code[place] in "([{":
            depth += 1
        elif code[place] in ")]}":
            depth -= 1
            if depth == 0:
                return place
    return -1


def operand_end(code, start):
    """Where the operand of && that begins at start ends."""
    depth = 0
    place = start
    while place < len(code):
        if code[place] in "([{":
            depth += 1
        elif code[place] in ")]}":
            depth -= 1
            if depth < 0:
                return place
        elif depth == 0 and (code[place] in ";,?" or code.startswith((" && ", " || ", " : ", "\n"), place) and code[place:].split(None, 1)[0] in ("&&", "||", ":")):
            return place
        place += 1
    return place


def swap_words(code, rule, pairs):
    for old, new in pairs.items():
        # The word first and what stands before it then: a search for a fixed text is quicker than one at each place.
        for match in re.finditer(rf"{re.escape(old)}(?<=[ \n]{re.escape(old)})(?=[ \n])", code):
            yield Mutant(rule, match.start(), match.end(), new)


def edges(code):
    yield from swap_words(code, "edge", {"<": "<=", "<=": "<", ">": ">=", ">=": ">"})


def comparisons(code):
    yield from swap_words(code, "comparison", {"==": "!=", "!=": "==", "&&": "||", "||": "&&"})
    for match in re.finditer(r"(?<=[(\s])!(?=[\w(])", code):
        yield Mutant("comparison", match.start(), match.end(), "")


def signs(code):
    pairs = {"+": "-", "-": "+", "*": "/", "/": "*", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="}
    for mutant in swap_words(code, "sign", pairs):
        if '"' not in code[mutant.start - 2:mutant.end + 2]:  # texts are joined with +
            yield mutant
    for match in re.finditer(r"(?:(?<=[(\[])|(?<=return )|(?<== ))-(?=[a-z(])", code):
        yield Mutant("sign", match.start(), match.end(), "")


def conditions(code):
    """Conditions that always or never hold, and one of several that is dropped."""
    for match in re.finditer(r"\bif \(", code):
        start, end = match.end(), closing(code, match.end() - 1)
        if end > start and ";" not in code[start:end]:
            yield Mutant("condition", start, end, "true")
            yield Mutant("condition", start, end, "false")
    for match in re.finditer(r"\s&& (?=\S)", code):
        yield Mutant("condition", match.start(), operand_end(code, match.end()), "")


def offsets(code):
    """Indices and counts that are off by one, the other end of a list, the other bound."""
    for match in re.finditer(r"(?<=[\w)\]])\[(?=[^\]])", code):
        end = closing(code, match.start())
        inner = code[match.end():end]
        if end > 0 and '"' not in inner and "\n" not in inner and not re.search(r"\b(operator|delete|new)$", code[:match.start()]):
            yield Mutant("index", match.end(), end, inner + " + 1")
            yield Mutant("index", match.end(), end, inner + " - 1")
    for match in re.finditer(r" [+-] 1\b(?![.'xu])", code):
        yield Mutant("index", match.start(), match.end(), "")
    for old, new in (("front()", "back()"), ("back()", "front()"), ("std::min(", "std::max("), ("std::max(", "std::min("), ("std::ceil(", "std::floor(")):
        for match in re.finditer(r"\b" + re.escape(old), code):
            yield Mutant("index", match.start(), match.end(), new)


def constants(code):
    for match in re.finditer(r"(?<![\w.'])(\d+)(u?l{0,2}|[uU]?[lL]{0,2})(?![\w.'])", code):
        value = int(match.group(1))
        yield Mutant("constant", match.start(), match.end(), f"{value + 1}{match.group(2)}")
        if value == 1:
            yield Mutant("constant", match.start(), match.end(), f"0{match.group(2)}")
    for match in re.finditer(r"(?<![\w.'])(\d+\.\d*(?:e-?\d+)?|\d+e-?\d+)(f?)(?![\w.'])", code):
        value = float(match.group(1))
        yield Mutant("constant", match.start(), match.end(), f"{value * 2 if value else 1.0!r}{match.group(2)}")
    for match in re.finditer(r"\b(true|false)\b", code):
        yield Mutant("constant", match.start(), match.end(), "false" if match.group(1) == "true" else "true")


def arguments(code):
    """Two neighbours in a list of arguments, changed over."""
    name = r"\*?[A-Za-z_][\w.]*(?:->\w+)*(?:\(\))?"
    for match in re.finditer(rf"(?:(?<=[\w>]\()|(?<=, )|(?<=\w\{{))(?={name}, {name}[,)}}])({name}), ({name})", code):
        if match.group(1) != match.group(2):
            yield Mutant("argument", match.start(), match.end(), f"{match.group(2)}, {match.group(1)}")


def statements(code):
    """(start, end) of what may be a statement, its semicolon with it"""
    marks = list(re.finditer(r"[][(){};]", code))
    places = [mark.start() for mark in marks]
    partners, open_ones = {}, []  # of a bracket that is closed: the index of the one that closes it
    for at, mark in enumerate(marks):
        if mark.group(0) in "([{":
            open_ones.append(at)
        elif mark.group(0) != ";" and open_ones:
            partners[open_ones.pop()] = at
    for match in re.finditer(r"[;{}]\s+", code):
        start = match.end()
        while True:  # behind `if (...)` and `else`
            head = re.compile(r"(?:else\s+)?(?:if|for|while) (?:constexpr )?\(|else\s+(?!if|\{)").match(code, start)
            if not head:
                break
            end = closing(code, head.end() - 1) + 1 if head.group(0).endswith("(") else head.end()
            if end <= 0:
                break
            start = end + len(code[end:]) - len(code[end:].lstrip())
        at = bisect.bisect_left(places, start)
        while at < len(marks):
            mark = marks[at].group(0)
            if mark == ";":
                yield start, places[at] + 1
                break
            if at not in partners:  # a bracket that ends what the statement is in
                break
            at = partners[at] + 1


def dropped(code):
    """Calls and assignments that are not made: a release, an fsync, a checksum, a count."""
    path = r"\*?(?:\(\*)?[A-Za-z_][\w:.<>*]*(?:(?:->|\.|::|\[|\]|\(|\)|\+|-)[\w:.\[\]()]*)*"
    for start, end in statements(code):
        statement = code[start:end]
        first = re.match(r"[A-Za-z_]\w*", statement)
        if first and first.group(0) in KEYWORDS or WITHOUT_EFFECT.search(statement):
            continue
        if re.match(r"(?:\+\+|--)?[\w.>\-\[\]()]+;$", statement) and not statement.endswith("();") and re.match(r"\+\+|--", statement):
            yield Mutant("assignment", start, end, ";")
        elif re.match(rf"{path} (?:=|\+=|-=|\*=|/=|\|=|&=) ", statement):
            yield Mutant("assignment", start, end, ";")
        elif re.match(r"[A-Za-z_][\w:.]*(?:->[\w:.]+|\(\)|\[[^\]]*\]|\.\w+)*\(", statement) and statement.endswith(");"):
            yield Mutant("call", start, end, ";")
    for match in re.finditer(r"\b(break|continue);", code):
        yield Mutant("jump", match.start(), match.end(), "continue;" if match.group(1) == "break" else "break;")


RULES = (edges, comparisons, signs, conditions, offsets, constants, arguments, dropped)


def mutants(text):
    """All mistakes that the rules can make in a source, in the order of its text."""
    code = code_of(text)
    silent = set()  # lines that say something to a person, or nothing to the machine
    for start, end in statements(code):
        if WITHOUT_EFFECT.search(code, start, end) and not re.match(r"[^;]*\{", code[start:end]):
            silent.update(range(code.count("\n", 0, start), code.count("\n", 0, end) + 1))
    lines = code.split("\n")
    silent.update(number for number, line in enumerate(lines) if NO_CODE.match(line))
    found = {mutant for rule in RULES for mutant in rule(code)}
    kept = [mutant for mutant in found if mutant.line(code) - 1 not in silent and text[mutant.start:mutant.end] != mutant.new]
    return sorted(kept, key=lambda mutant: (mutant.start, mutant.end, mutant.rule, mutant.new))


def draw(texts, seed, lines=None):
    """(file, mutant) in an order drawn by the seed: each line of code is as likely as any other, and on it each of its mutants.

    texts: {file: text}; lines: {file: lines counted from 1 that may change}, all without it.
    """
    generator = random.Random(seed)
    places = {}
    for file in sorted(texts):
        for mutant in mutants(texts[file]):
            number = mutant.line(texts[file])
            if lines is None or number in lines.get(file, ()):
                places.setdefault((file, number), []).append(mutant)
    for own in places.values():
        generator.shuffle(own)
    turn = 0
    while any(len(own) > turn for own in places.values()):  # a line's second mutant comes when all have had their first
        having = [place for place in places if len(places[place]) > turn]
        generator.shuffle(having)
        for place in having:
            yield place[0], places[place][turn]
        turn += 1


def lines_of(path):
    """The lines of a source, with those of a mistake that reaches over several; none where the file is gone."""
    lines = path.read_text().splitlines() if path.exists() else []
    lines += [" ".join(lines[i:i + n]) for n in range(2, 9) for i in range(len(lines))]
    return {" ".join(line.split()) for line in lines}


def read_equivalent(root):
    """{(file, line, line with the mistake)} of tests/equivalent_mutants.tsv; a ValueError for an entry that is no longer right"""
    path = pathlib.Path(root) / "tests" / "equivalent_mutants.tsv"
    found = set()
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if line and not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 4 or not columns[3].strip():
                raise ValueError(f"{path}:{number}: expected file, line, line with the mistake and why it is no mistake, with tabs between")
            if columns[1] not in lines_of(pathlib.Path(root) / columns[0]):
                raise ValueError(f"{path}:{number}: {columns[0]} has no such line any more: {columns[1]}")
            found.add(tuple(columns[:3]))
    return found
