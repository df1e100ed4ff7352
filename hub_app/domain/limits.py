"""Every bound of the hub, in one place, with the relations between them asserted at the end.

A bound is what keeps one record, one sink or one tenant from costing the others. What an operator may change is a
setting; what is written here is not. Units stand last in a name.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

# -- attributes of an event: docs/wire.md, "Record" -------------------------------------------------------------------
CE_ID_BYTES_MAX = 256
SOURCE_BYTES_MAX = 223
TENANT_BYTES_MAX = 256
SUBJECT_BYTES_MAX = 1_024
RESOURCE_TYPE_BYTES_MAX = 128
EVENT_TYPE_BYTES_MAX = 128
SCHEMA_VERSION_BYTES_MAX = 64
CONTENT_TYPE_BYTES_MAX = 256
DATA_SCHEMA_BYTES_MAX = 2_048
TIME_BYTES_MAX = 64
"""Longest RFC 3339 text looked at; with nine digits of fraction and an offset it is 35."""

# -- records: docs/topics.md -------------------------------------------------------------------------------------------
PAYLOAD_BYTES_MAX = 1 * MIB
HEADERS_BYTES_MAX = 256 * KIB
"""Names and values of a fact's headers together; a record with more is quarantined."""
HEADERS_COUNT_MAX = 8_192
"""Each header costs Kafka at least two bytes and Python an object or two; more are quarantined."""
MESSAGE_BYTES_MAX = 5 * MIB // 2
"""`max.message.bytes` of every internal topic."""
RECORD_BYTES_MAX = MESSAGE_BYTES_MAX - 64 * KIB
"""The largest record the hub writes, by `wire.record.record_bytes`: leaves room for the batch and its own overhead."""
HUB_HEADERS_BYTES_MAX = 64 * KIB
"""What the hub's own headers add to a record at most: two addresses, an error, a handful of short texts."""
ERROR_BYTES_MAX = 1 * KIB
"""Errors and answers kept as text are cut here."""
ANSWER_START_BYTES_MAX = 1 * KIB
"""How much of a sink's answer goes to the attempts log."""
CLAIMS_PER_RECORD_MAX = 4_096
"""Claims listed by one record of the attempts log; a tick with more writes several."""
DETAIL_BYTES_MAX = 512
"""What a quarantined record says about why."""

OFFSET_BITS = 40
"""Of an arrival sequence: offset in the lower bits, epoch above them."""
EPOCH_MAX = (1 << 19) - 1
NUMBER_DIGITS_MAX = 18
"""Longest count read from a header; what has as many digits fits in 63 bits."""
TEXT_BYTES_MAX = 4 * KIB
"""Longest short text read from a header of the hub's own: a tenant, a sink's address, a reason."""

# -- topics ------------------------------------------------------------------------------------------------------------
TOPIC_NAME_BYTES_MAX = 249
"""Kafka's own rule."""
SEGMENT_MS = 6 * HOUR_MS
TOMBSTONE_MS = 14 * DAY_MS
"""How long a deletion stays visible in a compacted topic: longer than any worker may be away."""

# -- subscriptions: docs/http-api.md, "Subscription" -------------------------------------------------------------------
FILTERS_MAX = 25
FILTER_VALUES_MAX = 25
FILTER_KEY_BYTES_MAX = 256
FILTER_VALUE_CHARS_MAX = 512
NAME_CHARS_MAX = 200
EVENT_TYPES_MAX = 100
"""Patterns of one subscription."""
EVENT_TYPE_CHARS_MAX = 512
ORIGINS_MAX = 100
ORIGIN_BYTES_MAX = 1 * KIB
"""Sources of producers are shorter; those of events published over HTTP may be any URI."""
STATIC_HEADERS_MAX = 32
STATIC_HEADERS_CHARS_MAX = 8 * KIB
"""Names and values of a subscription's static headers together: receivers take few KiB in all."""
SINK_TIMEOUT_MS_MIN = 100

# -- sinks: docs/delivery.md, "One attempt" and "Addresses" ------------------------------------------------------------
URL_CHARS_MAX = 2_048
HOST_CHARS_MAX = 253
"""DNS's own rule."""
ANSWER_BODY_BYTES_MAX = 64 * KIB
"""A longer body is cut here, and its connection closed."""
ANSWER_HEAD_BYTES_MAX = 32 * KIB
"""Status line and headers of an answer, those of its 1xx included."""
ANSWER_BYTES_MAX = 1 * MIB
"""Everything read for one answer, framing and trailers included: a body in one-byte chunks takes six times its size."""
RETRY_AFTER_CHARS_MAX = 128
FAILURE_CHARS_MAX = 300
ADDRESSES_TRIED_MAX = 8
"""Of one name, for one connection; all are checked."""
CONNECTIONS_IDLE_PER_TARGET_MAX = 64
CONNECTIONS_IDLE_MAX = 512
CONNECTION_IDLE_MS_MAX = 15 * SECOND_MS
"""Most servers keep an idle connection for 5 to 75 s. One that they close first costs a retry, not a failure."""
CONNECTION_AGE_MS_MAX = 5 * MINUTE_MS
"""So that a name which moves is followed, however busy the old connection is."""
NAMES_RESOLVED_MAX = 1_024
"""Names whose addresses are remembered, for a few seconds."""
LOOKUPS_MAX = 32
"""At once. More names than this would have to hang before a good one waits."""

# -- queues: docs/queues.md --------------------------------------------------------------------------------------------
QUEUE_NAME_BYTES_MAX = 256
"""Of a topic published to, and of a queue."""
QUEUE_LOCK_MS_MIN = 60 * SECOND_MS
"""A deployment for tests may allow less."""
QUEUE_LOCK_MS_MAX = 300 * SECOND_MS
QUEUE_RENEW_MS_MAX = 1 * HOUR_MS
"""After its first lock a delivery can be renewed for this long."""
QUEUE_DELIVERIES_MAX = 10
QUEUE_TTL_SLACK_MS = 24 * HOUR_MS
"""An event's time to live ends this long before the event itself is taken away."""
QUEUE_DELAYS_S = (0, 10, 60, 600, 3_600)
"""Of a release."""
QUEUE_TOKENS_MAX = 1_000
"""In one request."""
QUEUE_RECEIVED_MAX = 100
QUEUE_WAIT_S_MIN, QUEUE_WAIT_S_MAX, QUEUE_WAIT_S = 10, 120, 60
QUEUE_ANSWER_BYTES_MAX = 4 * MIB
"""Payloads in one answer, as stored; one event is always given."""
QUEUE_MARKS_PER_RECORD_MAX = 4_096
PUBLISH_BYTES_MAX = 1 * MIB
"""One event and one batch."""
PUBLISH_EVENTS_MAX = 1_000

# -- a job's life: docs/delivery.md, "Back-off curve" and "Auto-disable" -----------------------------------------------
SUSPENDED_MS_MAX = 96 * HOUR_MS
"""After its subscription became inactive, or after it was first deferred, a job is given up at this age."""
PARK_BEHIND_RECORDS = 50_000
"""A waiting job that holds a low-water mark further behind the head than this is copied ahead, once."""
PARK_SLACK_RECORDS = 12_500
"""And so many more before anybody looks: finding such jobs costs a look at all of a shard's."""
OUTAGE_MS_MAX = 7 * DAY_MS
"""The whole fleet may be down for this long without a loss."""

# -- caches of the hot path: an entry per distinct value, the least recently used goes first ---------------------------
VERDICT_SHAPES_MAX = 1_024
VERDICT_CONTEXTS_MAX = 1_024
VERDICT_SHAPE_BYTES_MAX = 2 * KIB
"""Sets of header names longer than this are judged anew each time, so that the cache stays small."""
TEXTS_MAX = 4_096
"""Small texts kept decoded or encoded: tenants, sources, subscriptions."""
PARTITIONS_MAX = 8_192
"""Keys whose partition is remembered."""
SECONDS_MAX = 512
"""Seconds whose RFC 3339 text is remembered."""

# -- relations ---------------------------------------------------------------------------------------------------------
assert SOURCE_BYTES_MAX + len("lerian.streaming.") + len(".dlq") <= TOPIC_NAME_BYTES_MAX
assert PAYLOAD_BYTES_MAX + HEADERS_BYTES_MAX + HUB_HEADERS_BYTES_MAX + 10 * HEADERS_COUNT_MAX <= RECORD_BYTES_MAX
assert RECORD_BYTES_MAX < MESSAGE_BYTES_MAX
assert URL_CHARS_MAX <= TEXT_BYTES_MAX
assert FAILURE_CHARS_MAX <= ERROR_BYTES_MAX
assert ANSWER_START_BYTES_MAX <= ANSWER_BODY_BYTES_MAX
assert 6 * ANSWER_BODY_BYTES_MAX + ANSWER_HEAD_BYTES_MAX <= ANSWER_BYTES_MAX
assert ERROR_BYTES_MAX + ANSWER_START_BYTES_MAX <= HUB_HEADERS_BYTES_MAX
assert CLAIMS_PER_RECORD_MAX * 128 <= RECORD_BYTES_MAX
assert SUBJECT_BYTES_MAX <= HEADERS_BYTES_MAX
assert (EPOCH_MAX + 1) << OFFSET_BITS <= 10**NUMBER_DIGITS_MAX < 1 << 63
assert max(TENANT_BYTES_MAX, SOURCE_BYTES_MAX, ERROR_BYTES_MAX) <= TEXT_BYTES_MAX
assert ORIGIN_BYTES_MAX >= SOURCE_BYTES_MAX
assert EVENT_TYPE_CHARS_MAX > RESOURCE_TYPE_BYTES_MAX + EVENT_TYPE_BYTES_MAX
assert SUSPENDED_MS_MAX + OUTAGE_MS_MAX < TOMBSTONE_MS
assert SEGMENT_MS < SUSPENDED_MS_MAX
assert QUEUE_LOCK_MS_MIN <= QUEUE_LOCK_MS_MAX <= QUEUE_RENEW_MS_MAX < QUEUE_TTL_SLACK_MS
assert QUEUE_RENEW_MS_MAX + QUEUE_LOCK_MS_MAX < QUEUE_TTL_SLACK_MS  # what is locked as its time ends is still there
assert QUEUE_MARKS_PER_RECORD_MAX * 64 <= RECORD_BYTES_MAX
assert PUBLISH_BYTES_MAX <= PAYLOAD_BYTES_MAX
assert QUEUE_NAME_BYTES_MAX <= TEXT_BYTES_MAX
