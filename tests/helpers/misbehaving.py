"""Environments that misbehave in their steps, by ids such as `tests.helpers.misbehaving:Hangs-v0`."""

import time
from pathlib import Path

import gymnasium

from tests.helpers.environments import Line
from tests.helpers.tasks import eat


class Hangs(Line):
    """Its second step never ends."""

    def step(self, action):
        if self.count == 1:
            time.sleep(1000)
        return super().step(action)


class Eats(Line):
    """Its second step takes all memory."""

    def step(self, action):
        if self.count == 1:
            eat()
        return super().step(action)


class Raises(Line):
    """Its second step raises."""

    def __init__(self):
        super().__init__(fault="raises", at=2)


class HangsOnce(Line):
    """Step `at` of a copy never ends, while there is no mark that this has happened."""

    def __init__(self, mark, at):
        super().__init__(at=at, limit=8)
        self.mark = Path(mark)

    def step(self, action):
        if self.count + 1 == self.at and not self.mark.exists():
            self.mark.touch()
            time.sleep(1000)
        return super().step(action)


for _name, _kind in (("Well", Line), ("Raises", Raises), ("Hangs", Hangs), ("Eats", Eats)):
    gymnasium.register(f"{_name}-v0", entry_point=_kind)
