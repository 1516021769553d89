"""KeptAnswers: what ZooKeeper answered and has not changed since. Pure; one thread asks, another hears of changes."""

from __future__ import annotations

from typing import Any


class KeptAnswers:
    """Answers by path, to requests of one kind.

    Each request sets a watch, and its answer counts until the watch fires. An answer that is noted after its watch has
    fired is not kept.
    """

    def __init__(self) -> None:
        self._answers: dict[str, list[Any]] = {}  # an empty list: asked for

    def find(self, path: str) -> list[Any]:
        """Return a list of the answer; an empty one if it is not known."""
        return self._answers.get(path, [])

    def asking(self, path: str) -> None:
        """Note that a request with a watch is about to be sent."""
        self._answers[path] = []

    def answered(self, path: str, answer: Any) -> None:
        """Keep the answer to the last request, unless something has changed since."""
        asked = self._answers.get(path)
        if asked is not None:
            asked.append(answer)  # if a change comes at this moment, nobody finds this list any more

    def changed(self, path: str) -> None:
        """Forget an answer."""
        self._answers.pop(path, None)

    def clear(self) -> None:
        """Forget all."""
        self._answers.clear()
