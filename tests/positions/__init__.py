"""Finding the right place again, whatever happened to source, node or cursor: on real MySQL and MariaDB."""
