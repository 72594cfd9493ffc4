"""``hlo_sharding_util``: functions of shardings."""

from __future__ import annotations

from xlakit.compat.xla_client.sharding import (
    partially_replicate_tiled_sharding_on_dims as PartiallyReplicateTiledShardingOnDims,
)

__all__ = ["PartiallyReplicateTiledShardingOnDims"]
