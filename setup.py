"""The package is described in setup.cfg, but for the module by which Spark finds the source.

Spark registers what installed top-level modules named pyspark_* hold. Ours lives in a folder of the spark room.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["canal_ha*"]), "pyspark_canal"],
    package_dir={"pyspark_canal": "canal_ha/spark/registration/pyspark_canal"},
)
