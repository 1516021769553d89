"""Configuration: canal's properties files, the environment and --set arguments in, frozen objects out.

`load.load_usable` reads a node's files, `load.load_instance` one destination again. `scan.compare` says which
destinations changed, `alarms` what to tell of it. `keys` is the one table of keys. Holds no state. A bad value raises
ConfigError naming file, line, key and value; unknown keys and keys of parts that do not exist here become
CanalConfig.warnings.
"""
