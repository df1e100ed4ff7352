"""The demo: a Kafka, two workers, a sink and a producer, watched until every fact is accounted for."""
