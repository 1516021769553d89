"""What setup.cfg cannot say: the kernel is compiled where a C compiler is, and Spark's module lies in the spark room.

CANAL_HA_KERNEL, as at import: `auto` compiles if it can, `require` fails if it cannot, `off` does not try.
CANAL_HA_CFLAGS: other options for the C compiler than ours.
Spark registers what installed top-level modules named pyspark_* hold.
"""

import os

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

KERNEL = "canal_ha/decode/kernel"
DECODER = ("cells", "numbers", "temporal", "documents", "rows", "protection", "gtid", "grouping", "stream", "images")
READER = (
    *("buffers", "fields", "layouts", "entries", "columns", "shapes"),
    *("changes", "queue_rows", "envelopes", "transactions"),
)
HOT = DECODER + READER  # kernel.HOT
FLAGS = os.environ.get("CANAL_HA_CFLAGS", "-O3 -g0").split()
WANTED = os.environ.get("CANAL_HA_KERNEL", "auto")
DIRECTIVES = {"language_level": 3, "annotation_typing": False}  # C types stand in the .pxd files


class BuildKernel(build_ext):
    """Cython, then C; without either of them the package is complete, and slow."""

    def run(self) -> None:
        try:
            from Cython.Build import cythonize

            self.parallel = self.parallel or os.cpu_count()
            made = cythonize(
                self.extensions,
                compiler_directives=DIRECTIVES,
                build_dir=self.build_temp,
                quiet=True,
                nthreads=self.parallel,
            )
            for extension, c_extension in zip(self.extensions, made, strict=True):
                extension.sources = c_extension.sources
            super().run()
        except Exception as error:
            if WANTED == "require":
                raise
            self.warn(
                "canal-ha works, but decodes rows some twenty times slower than it could: its kernel was not compiled"
                f" ({str(error)[:80]}). Install a C compiler and Python's headers (Debian: gcc python3-dev), then"
                " install again; CANAL_HA_KERNEL=off says that this is what you want."
            )
            self.extensions = []


if __name__ == "__main__":  # a process that translates a module imports this file
    setup(
        packages=[*find_packages(include=["canal_ha*"]), "pyspark_canal"],
        package_dir={"pyspark_canal": "canal_ha/spark/registration/pyspark_canal"},
        ext_modules=[
            Extension(
                f"canal_ha.decode.kernel.{name}",
                [f"{KERNEL}/{name}.py"],
                include_dirs=[KERNEL],
                extra_compile_args=FLAGS,
            )
            for name in HOT
            if WANTED != "off"
        ],
        cmdclass={"build_ext": BuildKernel},
    )
