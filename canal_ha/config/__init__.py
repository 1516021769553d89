"""Configuration: canal's properties files in, frozen objects out.

files < environment < --set. Unknown keys warn by name; a bad value raises ConfigError naming file, key and value.
"""
