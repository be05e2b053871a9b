"""The session of the tests on Spark: Java takes jars only when it starts, so all tests start it alike."""

from tests.spark.conftest import java, spark

__all__ = ["java", "spark"]
