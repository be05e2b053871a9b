"""Random texts of filters: most of them XPath with few names and constants, so that many are equal."""

from __future__ import annotations

from random import Random

_NAMES = ["a", "b", "c", "a.b", "a-b"]
_RARE_NAMES = [
    "and",
    "or",
    "div",
    "mod",
    "text",
    "not",
    "as",
    "from",
    "join",
    "self",
    "position",
    "inf",
    "a-",
]
_RARE_NAMES += ["_0_", "_1_", "é", "aé", "p:a", "q:a", "r:b", "*:a", "p:*", "undeclared:a"]
_CONSTANTS = ["5", "5.0", "7", "'x'", '"x"', "'5'", "'y z'"]
_RARE_CONSTANTS = ["05", "0", "-0", "-5", ".5", "5.", "1e3", "''", '"it\'s"', "\"='x'\"", "'a[b]'", "7310001"]
_RARE_CONSTANTS += ["'_0_'", "'{0}'", "'='", "'\\'", "- 5", "9" * 20, "9" * 400]
_OPERATORS = ["=", " = ", "!=", " > ", "<"]
_RARE_OPERATORS = ["<= ", " <= ", ">=", " != ", "=  ", "  = ", "= \n"]
_FUNCTIONS = ["text()", ".", "position()", "last()", "count(a)", "local-name()", "name()", "string()"]
_FUNCTIONS += ["string(a)", "normalize-space(a)", "number(b)", ".//text()"]
_ALONE = ["1", "2", "last()", "last() - 1", "position() < 3", "true()", "false()", "'x'", "7310000", "[", ")"]
_JOINTS = [" and ", " and ", " or ", " or ", " | "]
_RARE_JOINTS = ["and ", " and", "  and ", "|", " div ", " AND ", "\nand\n"]
_ODD = list("[]()/@='\" *:.-$|{}<>,!\té")


class QueryTexts:
    """Makes texts; `odd` is how often one of the rare names, constants, operators and so on is taken."""

    def __init__(self, rng: Random, odd: float) -> None:
        self._rng = rng
        self._odd = odd

    def query(self) -> str:
        match self._rng.choices(["path", "two", "comparison", "expression"], [75, 10, 10, 5])[0]:
            case "path":
                text = self._path(2)
            case "two":
                text = self._path(1) + self._joint() + self._path(1)
            case "comparison":
                text = self._path(1) + self._operator() + self._constant()
                if self._one_in(2):
                    text += " and " + self._path(1) + self._operator() + self._constant()
            case _:
                text = self._expression(2)
        return self.damaged(text) if self._rng.random() < self._odd / 4 else text

    def varied(self, text: str) -> str:
        """The text with other names and constants here and there."""
        for _ in range(self._rng.randint(1, 3)):
            pool = _NAMES if self._one_in(2) else _CONSTANTS
            text = text.replace(self._rng.choice(pool), self._rng.choice(pool), self._rng.choice([1, -1]))
        return text

    def damaged(self, text: str) -> str:
        """The text with one character inserted or replaced."""
        at = self._rng.randrange(len(text) + 1)
        return text[:at] + self._rng.choice(_ODD) + text[at + self._rng.randint(0, 1) :]

    def _path(self, depth: int) -> str:
        text = ""
        for _ in range(self._rng.randint(1, 3)):
            text += self._rng.choice(["/", "/", "//"]) + self._test()
            while depth > 0 and self._rng.random() < 0.45:
                space = " " if self._is_odd() else ""
                text += f"[{space}{self._expression(depth - 1)}{space}]"
        return text + self._end()

    def _relative(self) -> str:
        start = self._rng.choice(["", "", "", "", ".//", "./", "@"])
        if self._is_odd():
            start = self._rng.choice([".", "..", "self::", "child::", "descendant::", "/", "//"])
        steps = [self._test() for _ in range(self._rng.randint(1, 3))]
        slash = self._rng.choice(["/", "/", "/", "//", "/./"])
        return start + slash.join(steps) + self._end()

    def _end(self) -> str:
        if self._one_in(6):
            return self._rng.choice(["/@", "/@", "//@"]) + (self._name() if not self._one_in(5) else "*")
        if self._one_in(8):
            return self._rng.choice(["/text()", "//text()"]) if not self._is_odd() else "/text ()"
        return ""

    def _expression(self, depth: int) -> str:
        text = self._operand(depth)
        for _ in range(self._rng.choice([0, 0, 0, 1, 1, 2, 3])):
            text += self._joint() + self._operand(depth)
        return text

    def _operand(self, depth: int) -> str:
        kinds = ["path", "attribute", "value", "function", "contains", "alone", "inside", "other", "deeper"]
        match self._rng.choices(kinds, [25, 15, 25, 6, 8, 3, 10, 2, 10])[0]:
            case "path":
                return self._relative()
            case "attribute":
                return f"@{self._name()}{self._operator()}{self._constant()}"
            case "value":
                return self._relative() + self._operator() + self._constant()
            case "function":
                return self._rng.choice(_FUNCTIONS) + self._operator() + self._constant()
            case "contains":
                subject = self._rng.choice([self._relative(), ".", "@a", "text()", "string(a)"])
                subject = self._constant() if self._is_odd() else subject
                function = self._rng.choice(["contains", "starts-with"])
                return f"{function}({subject}{self._rng.choice([',', ', '])}{self._constant()})"
            case "alone":
                return self._rng.choice(_ALONE)
            case "inside" if depth > 0:
                function = self._rng.choice(["not(", "not( ", "boolean(", "(", "count(", "string("])
                return f"{function}{self._expression(depth - 1)})"
            case "other":
                return self._constant() + self._operator() + self._relative()
        return self._relative() + (f"[{self._expression(depth - 1)}]" if depth > 0 else "")

    def _test(self) -> str:
        return "*" if self._one_in(7) else self._name()

    def _name(self) -> str:
        return self._rng.choice(_RARE_NAMES if self._is_odd() else _NAMES)

    def _constant(self) -> str:
        return self._rng.choice(_RARE_CONSTANTS if self._is_odd() else _CONSTANTS)

    def _operator(self) -> str:
        return self._rng.choice(_RARE_OPERATORS if self._is_odd() else _OPERATORS)

    def _joint(self) -> str:
        return self._rng.choice(_RARE_JOINTS if self._is_odd() else _JOINTS)

    def _is_odd(self) -> bool:
        return self._rng.random() < self._odd

    def _one_in(self, n: int) -> bool:
        return self._rng.randrange(n) == 0
