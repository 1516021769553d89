"""The package is described in setup.cfg."""

from setuptools import setup

setup()
