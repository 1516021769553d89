"""canal-ha: a change data capture cluster for MySQL and MariaDB that speaks canal's protocol."""

from canal_ha.version import VERSION as __version__

__all__ = ["__version__"]
