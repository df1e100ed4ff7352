"""One memory budget for every shard of a process: a block cache and a write-buffer manager that all stores share.

With two planes of twelve shards and about eight column families each, per-store defaults (64 MiB of write buffer a
family) would be tens of gigabytes. Here the sum is bounded, whatever the number of stores.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options, Rdict, WriteBufferManager

BLOCK_CACHE_BYTES = 48 << 20
"""Blocks, indexes, filters and, up to their own bound, write buffers."""
WRITE_BUFFER_BYTES = 20 << 20
"""What all write buffers together may hold before the largest are written out."""
_WAL_BYTES_MAX = 32 << 20
_ARENA_BYTES = 32 << 10
_FLUSH_BYTES_MIN = 64 << 10
_RELIEF_S = 1.0
_BUFFERED = "rocksdb.cur-size-active-mem-table"
_FILES_OPEN_MAX = 64
_LOG_FILE_BYTES_MAX = 1 << 20


class Family(NamedTuple):
    """A column family and how it is used.

    `lookups`: point reads of keys that are mostly absent (bloom filters in files and in memory).
    `buffer_bytes`: how much of it is gathered in memory before it is written as a file.
    """

    name: str
    lookups: bool = False
    buffer_bytes: int = 4 << 20


class Memory:
    """The shared budget. Make one per process and give it to every `ShardStore.open`.

    RocksDB's own manager, once over its bound, makes whoever writes next write out its buffers, however small, while
    idle stores keep theirs. So this comes first: over `write_buffer_bytes`, the largest buffers of any store are
    written out, in the background; the manager's bound stands behind it at twice as much.
    """

    __slots__ = ("_cache", "_line", "_manager", "_relieved_s", "_stores", "_write_buffer_bytes")

    def __init__(
        self, *, block_cache_bytes: int = BLOCK_CACHE_BYTES, write_buffer_bytes: int = WRITE_BUFFER_BYTES
    ) -> None:
        self._cache = Cache(block_cache_bytes)
        # allow_stall would block the event loop until a flush ends; without it the bound is soft for a moment.
        self._manager = WriteBufferManager.new_write_buffer_manager_with_cache(
            2 * write_buffer_bytes, False, self._cache
        )
        self._write_buffer_bytes = self._line = write_buffer_bytes
        self._relieved_s = 0.0
        self._stores: dict[int, Mapping[str, Rdict]] = {}

    def enter(self, tables: Mapping[str, Rdict]) -> None:
        """Count an open store's families in."""
        self._stores[id(tables)] = tables

    def leave(self, tables: Mapping[str, Rdict]) -> None:
        """Let go of a store that is about to close."""
        self._stores.pop(id(tables), None)

    def relieve(self) -> None:
        """To be called after each write: writes the largest buffers out when all together are over the bound."""
        used = self.buffered_bytes()
        if used < self._write_buffer_bytes:
            self._line = self._write_buffer_bytes
            return
        now_s = time.monotonic()
        if used < self._line and now_s - self._relieved_s < _RELIEF_S:
            return
        # Buffers count until they are on disk: the next relief waits for that, for as much again on top, or a while.
        self._line, self._relieved_s = used + self._write_buffer_bytes // 4, now_s
        too_much = used - self._write_buffer_bytes // 2
        families = [table for tables in self._stores.values() for table in tables.values()]
        sizes = [table.property_int_value(_BUFFERED) or 0 for table in families]
        for size, table in sorted(zip(sizes, families, strict=True), key=lambda pair: pair[0], reverse=True):
            if too_much <= 0 or size < _FLUSH_BYTES_MIN:
                break
            table.flush(False)
            too_much -= size

    def used_bytes(self) -> int:
        """Bytes of the cache in use, write buffers included."""
        return int(self._cache.get_usage())

    def buffered_bytes(self) -> int:
        """Bytes in write buffers, those included that are being written out."""
        return int(self._manager.get_usage())

    def options(self, family: Family | None = None) -> Options:
        """Options of a database (`None`) or of one family in it, within this budget."""
        family = family or Family("default", buffer_bytes=64 << 10)
        made = Options(raw_mode=True)
        made.create_if_missing(True)
        made.create_missing_column_families(True)
        made.set_write_buffer_manager(self._manager)
        made.set_block_based_table_factory(self._blocks(family))
        made.set_compression_type(DBCompressionType.lz4())
        made.set_write_buffer_size(family.buffer_bytes)
        # The budget is charged by the arena block, also for a family with one row: an eighth of the buffer (the
        # default) for each of two hundred families would be all of it.
        made.set_arena_block_size(min(_ARENA_BYTES, family.buffer_bytes // 8))
        made.set_max_write_buffer_number(6)
        made.set_target_file_size_base(max(family.buffer_bytes, 4 << 20))
        # Slow-down and stop triggers far away: a stalled write would hold the event loop, and the logs in Kafka, not
        # this table, are what bounds a backlog.
        made.set_level_zero_file_num_compaction_trigger(4)
        made.set_level_zero_slowdown_writes_trigger(40)
        made.set_level_zero_stop_writes_trigger(80)
        if family.lookups:
            made.set_memtable_whole_key_filtering(True)
            made.set_memtable_prefix_bloom_ratio(0.02)
        self._database_wide(made)
        return made

    def _blocks(self, family: Family) -> BlockBasedOptions:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_format_version(5)
        # Index and filter blocks count against the cache, else they grow with the data outside of any budget.
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        if family.lookups:
            blocks.set_bloom_filter(10, False)
        return blocks

    @staticmethod
    def _database_wide(made: Options) -> None:
        made.set_max_background_jobs(2)
        made.set_max_open_files(_FILES_OPEN_MAX)
        made.set_max_total_wal_size(_WAL_BYTES_MAX)
        # A torn tail after a kill is normal and ends the replay there: rows and offsets of one batch stand or fall
        # together, so an earlier point in time is a correct (older) store.
        made.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
        made.set_paranoid_checks(True)
        made.set_keep_log_file_num(2)
        made.set_max_log_file_size(_LOG_FILE_BYTES_MAX)
        made.set_stats_dump_period_sec(0)
        made.set_stats_persist_period_sec(0)
