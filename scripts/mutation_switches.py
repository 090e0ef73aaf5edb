"""Writes many mistakes of a source into one text, each behind a switch that the program reads when it starts (scripts/mutate_room).

What mistakes change is written once as it is, and once for each mistake: the innermost statement, condition, initial value or argument
around it. Rules over text cannot wrap everything; what they wrap wrongly does not compile, and is found by the lines of the errors.
"""

import bisect
import dataclasses
import re

import mutation_rules

# mutation_switches.cpp defines both.
PROLOGUE = ('extern "C" int trainyard_mutant_active; extern "C" unsigned char trainyard_mutant_seen[]; '
            "static inline bool trainyard_mutant_is(int number) { "
            "if (!trainyard_mutant_seen[number]) trainyard_mutant_seen[number] = 1; "
            "return __builtin_expect(trainyard_mutant_active == number, 0); }\n")
BEFORE_BLOCK = re.compile(r"(?:[\])]|\belse|\bdo|\btry|\bconst|\bnoexcept|\boverride|\bfinal|\bmutable|[;{}:])\s*$|\)\s*->\s*[\w:<>,&* ]+$")
BEFORE_SCOPE = re.compile(r"\b(?:namespace|class|struct|enum|union)\b[^;{}()]*$")
DECLARED = re.compile(r"(?:(?:static|const|auto|unsigned|long)\s+)*(?:[\w:]+(?:<[^;={}]*>)?(?:\s*::\w+)?(?:\s+const)?\s*[&*]*\s+[&*]*\w+"
                      r"|(?:const )?auto[&*]* \[[\w, ]+\])\s*= (?!\{)")
DECLARED_IN_BRACKETS = re.compile(r"(?:const\s+)?[\w:]+(?:<[^;=]*>)?[&*]*\s+[&*]*\w+\s*[({;\[]")
NO_STATEMENT = re.compile(r"[{}]|(?:do|try|case|default|goto|using|static|constexpr|struct|class|enum)\b")
HEAD = re.compile(r"(else\s+)?(if constexpr|if|for|while|switch|catch) \(|else\s+(?!if\b)|do\s+(?!\{)")


@dataclasses.dataclass
class Unit:
    """A part of a source that is written once for each of its mutants."""

    start: int
    end: int
    kind: str  # "condition", "value", "effect": an expression; "statement"; "leaving": a statement behind which nothing runs
    mutants: list = dataclasses.field(default_factory=list)  # (number, Mutant)
    inner: list = dataclasses.field(default_factory=list)


class Source:
    def __init__(self, text):
        self.text, self.code = text, mutation_rules.code_of(text)
        self.partner, self.brackets, self.around = {}, [], []  # of an opening bracket; places; the innermost bracket behind each
        stack = []
        for match in re.finditer(r"[][(){}]", self.code):
            if match.group(0) in "([{":
                stack.append(match.start())
            elif stack:
                self.partner[stack.pop()] = match.start()
            self.brackets.append(match.start())
            self.around.append(stack[-1] if stack else -1)

    def bracket_around(self, place):
        at = bisect.bisect_left(self.brackets, place) - 1
        return self.around[at] if at >= 0 else -1

    def is_block(self, brace):
        """Whether an opening bracket begins a list of statements."""
        if brace < 0 or self.code[brace] != "{":
            return False
        head = self.code[max(0, brace - 400):brace]
        since = max(head.rfind(";"), head.rfind("{"), head.rfind("}")) + 1
        return not BEFORE_SCOPE.search(head[since:]) and bool(BEFORE_BLOCK.search(head))

    def cuts(self, start, end, marks):
        """The places of marks between start and end, but for those in brackets."""
        found, place = [], start
        while place < end:
            if self.code[place] in "([{":
                place = self.partner.get(place, end)
            elif self.code[place] in marks:
                found.append(place)
            place += 1
        return found

    def skip_space(self, place, end=None):
        rest = self.code[place:end]
        return place + len(rest) - len(rest.lstrip())

    def unit(self, mutant):
        """The Unit that a mutant is in, or None where none can be told."""
        inner = self.bracket_around(mutant.start)
        while inner >= 0 and self.partner.get(inner, -1) < mutant.end:
            inner = self.bracket_around(inner)
        block, outermost = inner, mutant.start  # the block around it, and the outermost bracket in this around the mutant
        while block >= 0 and not self.is_block(block):
            block, outermost = self.bracket_around(block), block
        found = self.in_block(block, outermost, mutant) if block >= 0 else None
        if not found and inner >= 0 and inner != block:
            found = self.argument(inner, mutant)
        return found if found and found.start <= mutant.start and mutant.end <= found.end else None

    def argument(self, bracket, mutant):
        cuts = [bracket, *self.cuts(bracket + 1, self.partner[bracket], ",;"), self.partner[bracket]]
        for left, right in zip(cuts, cuts[1:]):
            if left < mutant.start and mutant.end <= right:
                start = self.skip_space(left + 1, right)
                member = re.match(r"\.\w+ = ", self.code[start:right])  # {.member = value}
                return Unit(start + (member.end() if member else 0), right, "value")
        return None

    def first_of_statement(self, block, until):
        """Where the statement of a block begins in which `until` is."""
        begin = place = block + 1
        while place < until:
            mark = self.code[place]
            if mark in "([{":
                closed = self.partner.get(place)
                if closed is None:
                    return None
                if mark == "{" and self.is_block(place) and self.code[closed + 1:closed + 2] not in (")", ",", ";", "("):
                    begin = closed + 1
                place = closed
            elif mark == ";" or mark == ":" and re.search(r"\b(?:case [\w:']+|default)$", self.code[begin:place]) and self.code[place + 1] != ":":
                begin = place + 1
            place += 1
        return self.skip_space(begin)

    def in_block(self, block, outermost, mutant):
        begin = self.first_of_statement(block, outermost)
        while begin is not None and (head := HEAD.match(self.code, begin)):
            if head.group(2) is None:  # else, do
                begin = head.end()
                continue
            opened, closed = head.end() - 1, self.partner.get(head.end() - 1)
            if closed is None or opened < mutant.start and mutant.end <= closed:
                return closed and self.in_head(head.group(2), opened, closed, mutant)
            begin = self.skip_space(closed + 1)
        if begin is None or mutant.start < begin:
            return None
        ends = self.cuts(begin, self.partner[block], ";")
        if not ends or NO_STATEMENT.match(self.code, begin):
            return None
        end = ends[0] + 1
        if re.compile(r"(?:return|throw|break|continue)\b").match(self.code, begin):
            return Unit(begin, end, "leaving")
        if declared := DECLARED.match(self.code[begin:end]):
            value = begin + declared.end()
            return None if self.cuts(value, end - 1, ",") else Unit(value, end - 1, "value")
        if DECLARED_IN_BRACKETS.match(self.code[begin:end]):
            return None
        return Unit(begin, end, "statement")

    def in_head(self, word, opened, closed, mutant):
        if word in ("if constexpr", "catch"):
            return None
        cuts = [opened, *self.cuts(opened + 1, closed, ";"), closed]
        for number, (left, right) in enumerate(zip(cuts, cuts[1:])):
            if not (left < mutant.start and mutant.end <= right):
                continue
            start = self.skip_space(left + 1, right)
            piece = self.code[start:right]
            last = number == len(cuts) - 2
            if word == "for" and len(cuts) == 4 and number > 0:
                return Unit(start, right, "effect" if last else "condition")
            if word == "for" and len(cuts) == 2:
                value = re.search(r" : ", piece)
            else:
                value = re.match(r"(?:const )?[\w:<>]+[&*]* (?:[&*]*\w+|\[[\w, ]+\]) = ", piece)
                if not value and last:
                    return Unit(start, right, "value" if word == "switch" else "condition")
            return Unit(start + value.end(), right, "value") if value and not self.cuts(start, right, ",") else None
        return None


def units_of(source, numbered):
    """(outermost units in order, numbers of the mutants that are in none)"""
    found, left = {}, []
    for number, mutant in numbered:
        unit = source.unit(mutant)
        if unit:
            found.setdefault((unit.start, unit.end), unit).mutants.append((number, mutant))
        else:
            left.append(number)
    outermost, stack = [], []
    for key in sorted(found, key=lambda key: (key[0], -key[1])):
        unit = found[key]
        while stack and stack[-1].end <= unit.start:
            stack.pop()
        if stack and unit.end > stack[-1].end:
            left += [number for number, _ in unit.mutants]
            continue
        (stack[-1].inner if stack else outermost).append(unit)
        stack.append(unit)
    return outermost, left


class Writer:
    """The text, and for each of its lines the numbers of the mutants that it is about."""

    CASTS = {"condition": "static_cast<bool>", "effect": "static_cast<void>", "value": ""}

    def __init__(self, text):
        self.text, self.parts, self.lines = text, [], [set()]

    def put(self, text, numbers=()):
        self.parts.append(text)
        self.lines[-1].update(numbers)
        for _ in range(text.count("\n")):
            self.lines.append(set(numbers))

    def put_span(self, start, end, units):
        for unit in units:
            self.put(self.text[start:unit.start])
            self.put_unit(unit)
            start = unit.end
        self.put(self.text[start:end])

    def put_unit(self, unit):
        every = [number for number, _ in unit.mutants]
        cast = self.CASTS.get(unit.kind)
        self.put("{" if cast is None else "(", every)
        for number, mutant in unit.mutants:
            form = self.text[unit.start:mutant.start] + mutant.new + self.text[mutant.end:unit.end]
            self.put("\n")
            if cast is None:
                self.put(f"if (trainyard_mutant_is({number})) {{ {form}\n}}", [number])
            else:
                self.put(f"trainyard_mutant_is({number}) ? {cast}({form if form.strip(' ;') else '0'}\n)", [number])
            self.put("\n")
            self.put(":" if cast is not None else "else" if unit.kind == "statement" else "", every)
        opened, closed = {"statement": (" {", "\n}}"), "leaving": ("", "\n}")}.get(unit.kind, (f" {cast}(", "\n))"))
        self.put(opened, every)
        self.put_span(unit.start, unit.end, unit.inner)
        self.put(closed, every)


class Switched:
    """A source with switches: its text, and the numbers of the mutants that could not be wrapped."""

    def __init__(self, text, numbered):
        source = Source(text)
        units, self.left_out = units_of(source, numbered)
        writer = Writer(text)
        writer.put(PROLOGUE)
        writer.put_span(0, len(text), units)
        self.text, self.lines = "".join(writer.parts), writer.lines

    def near(self, line, reach):
        """The numbers that a line of the text is about, or the next one above it."""
        for at in range(line - 1, max(-1, line - 1 - reach), -1):
            if at < len(self.lines) and self.lines[at]:
                return self.lines[at]
        return set()

    def blamed(self, path, messages):
        """The numbers of the mutants that a compiler's errors are about. path: of the text, as in the messages"""
        places = [(int(match.group(1)), match.group(2)) for match in re.finditer(re.escape(str(path)) + r":(\d+):(?:\d+:)? ?(error)?", messages)]
        errors = [line for line, error in places if error]
        # An error in a header is one of the lines that its notes name.
        for lines, reach in ((errors, 1), (errors, 60), ([line for line, _ in places], 12)):
            found = set().union(*(self.near(line, reach) for line in lines))
            if found:
                return found
        return set()
