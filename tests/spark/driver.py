"""A driver that tests kill: `python -m tests.spark.driver FILE [--once]` runs a pipeline with the crashing source."""

from __future__ import annotations

import sys

from canal_ha.errors import CanalError
from canal_ha.spark import pipeline, pipeline_file
from tests.spark.crashing import CrashingSource


def main() -> int:
    """Run the pipeline and return 0, or 1 if the query ended with an error."""
    described = pipeline_file.load(sys.argv[1])
    spark = pipeline.session(described)
    try:
        pipeline.run(spark, described, once="--once" in sys.argv, source=CrashingSource)
    except CanalError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
