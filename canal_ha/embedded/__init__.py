"""A node inside a Python program, without TCP, as canal's CanalServerWithEmbedded is for Java.

In: settings, as a mapping or a directory of properties files; requests of clients by their identity. Out: messages of
entries, as from a connector. EmbeddedServer blocks; AsyncEmbeddedServer is for asyncio. Both run a node on Twisted's
reactor, in a thread that belongs to this package. Raises LocalProtocolError for calls in the wrong order, ConfigError
for settings, and the errors of an instance: NotRunningHere, NotSubscribed, BatchNotFirst, BatchUnknown, ...
"""

from canal_ha.embedded.async_server import AsyncEmbeddedServer
from canal_ha.embedded.server import EmbeddedServer
from canal_ha.model.identity import ClientIdentity

__all__ = ["AsyncEmbeddedServer", "ClientIdentity", "EmbeddedServer"]
