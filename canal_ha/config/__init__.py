"""Configuration: canal's properties files, the environment and --set arguments in, frozen objects out.

`load.load_usable` reads a node's files; `load.load_instance` reads one destination again. `scan.compare` finds changed
destinations; `alarms` describes unusable files. `keys` is the only table of keys. The package holds no state. A bad
value raises ConfigError with file, line, key and value. Unknown keys and keys of missing features become
CanalConfig.warnings.
"""
