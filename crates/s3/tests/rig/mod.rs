//! A store that a test controls, a shard, a gateway between, and a client that reads raw HTTP.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod client;
pub(crate) mod shard;
pub(crate) mod store;

use forebay_s3::{CacheConfig, Gateway, GatewayConfig, VerifyConfig};
use shard::{PAGE_BYTES, Running, VOLUME_BYTES};
use std::net::Ipv4Addr;
use std::time::Duration;
use store::Store;

/// All of it, running.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) gateway: Gateway,
    pub(crate) shard: Running,
}

impl World {
    pub(crate) fn new(metadata_ttl: Duration) -> Self {
        Self::start(metadata_ttl, None)
    }

    /// With keys of the gateway's own.
    pub(crate) fn verifying(metadata_ttl: Duration, verify: VerifyConfig) -> Self {
        Self::start(metadata_ttl, Some(verify))
    }

    fn start(metadata_ttl: Duration, verify: Option<VerifyConfig>) -> Self {
        let (store, shard) = (Store::start(), Running::start(true));
        let gateway = Gateway::start(GatewayConfig {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            backend: format!("http://{}", store.address()),
            names: Vec::new(),
            connections_max: 64,
            answers_within: Duration::from_secs(5),
            verify,
            threads: 2,
            cache: Some(CacheConfig {
                pool: shard.pool.clone(),
                space_bytes: VOLUME_BYTES,
                page_bytes: PAGE_BYTES,
                versions_max: 1000,
                small_bytes: 1 << 20,
                metadata_ttl,
            }),
        })
        .expect("it starts");
        Self { store, gateway, shard }
    }

    /// A GET with these headers.
    pub(crate) fn get(&self, path: &str, headers: &[(&str, &str)]) -> client::Answer {
        client::ask(self.gateway.address(), "GET", path, headers, b"")
    }

    /// Drops these pages of the object space.
    pub(crate) fn evict(&self, pages: std::ops::Range<u64>) {
        let range = pages.start * shard::PAGE..pages.end * shard::PAGE;
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.shard.pool.evict(range)).expect("an answer");
    }

    /// Until what was given to the cache is in it.
    pub(crate) fn settle(&self) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Bytes that look random and are the same each time.
pub(crate) fn bytes(seed: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| ((at ^ (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}
