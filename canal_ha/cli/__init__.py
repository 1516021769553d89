"""The command line: one module per subcommand, imported when it is called.

Each module has `command`, a click command. CanalError ends a command with its text and code 1, ConfigError with 2.
"""
