"""The command line: one module per subcommand, imported on use.

Each module defines `command`, a click command. A CanalError ends it with the error's text and exit
code 1, a ConfigError with 2.
"""
