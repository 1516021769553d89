"""Entry point for spark-submit: `spark-submit <site-packages>/canal_ha/spark/submit.py FILE [--once]`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from canal_ha.errors import CanalError
from canal_ha.spark import pipeline, pipeline_file


def main(arguments: list[str]) -> int:
    """Run a file's pipeline in spark-submit's session; return the exit code."""
    files = [argument for argument in arguments if argument != "--once"]
    if len(files) != 1:
        sys.stderr.write("usage: spark-submit submit.py FILE [--once]\n")
        return 2
    spark = None
    try:
        described = pipeline_file.load(files[0])
        spark = SparkSession.builder.appName(f"canal-ha {described.name}").getOrCreate()
        pipeline.run(spark, described, once="--once" in arguments)
    except CanalError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        if spark is not None:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
