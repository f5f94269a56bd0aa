"""How many tokens a step may compute: fewer after one for which the device had not enough memory."""

_CLEAN_STEPS = 64


class StepBound:
    """`rows` is `most` to begin with, half of what failed afterwards, and twice as much again whenever so many steps in
    a row went well."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._clean = 0
        self.rows = most

    def ran_out(self, rows: int) -> None:
        """A step of so many tokens, at least two, was too large."""
        self._clean = 0
        self.rows = rows // 2

    def went_well(self) -> None:
        """A step was computed."""
        if self.rows == self._most:
            return
        self._clean += 1
        if self._clean == _CLEAN_STEPS:
            self._clean = 0
            self.rows = min(self._most, 2 * self.rows)
