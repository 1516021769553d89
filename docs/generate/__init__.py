"""Make the reference from the code: configuration, commands, errors, log events, metrics, pipeline keys, status.

In: the registries of canal_ha, and its source text for log events. Out: Markdown. Needs no Sphinx. `docs/conf.py`
replaces each `<!-- generated: NAME -->` in a page with what PAGES[NAME] returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs.generate import commands, configuration, errors, events, metrics, pipelines, status

PAGES: Mapping[str, Callable[[], str]] = {
    "configuration": configuration.page,
    "commands": commands.page,
    "errors": errors.page,
    "log events": events.page,
    "metrics": metrics.page,
    "pipeline keys": pipelines.page,
    "status": status.page,
}
