"""Configuration: canal's properties files, the environment and --set arguments in, frozen objects out.

`load.load` reads a node's files, `load.load_instance` one destination again, `scan.compare` says which destinations
changed. `keys` is the one table of keys. Holds no state. A bad value raises ConfigError naming file, key and value;
unknown keys and keys of parts that do not exist here become CanalConfig.warnings.
"""
