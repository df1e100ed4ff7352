"""A real Apache Kafka on this machine, from Maven jars, without containers: for the demo, tests and benchmarks."""

from hub_app.dev.kafka.cluster import Cluster, External, NodeStatus, from_environment
from hub_app.dev.kafka.errors import BrokerFailed, KafkaUnavailable

__all__ = ["BrokerFailed", "Cluster", "External", "KafkaUnavailable", "NodeStatus", "from_environment"]
