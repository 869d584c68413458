//! A store that a test controls, a shard, a gateway between, and a client that reads raw HTTP.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod client;
pub(crate) mod shard;
pub(crate) mod store;

use forebay_core::SplitConfig;
use forebay_objects::{PolicyRow, Token};
use forebay_s3::{CacheConfig, Gateway, GatewayConfig, VerifyConfig};
use forebay_signature::{Secret, StoreKey};
use shard::{PAGE_BYTES, Running, VOLUME_BYTES};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use store::Store;

/// Of who tells of changes.
pub(crate) const TOKEN: &str = "0123456789abcdef";

/// All of it, running.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) gateway: Gateway,
    pub(crate) shard: Running,
}

impl World {
    pub(crate) fn new(metadata_ttl: Duration) -> Self {
        Self::start(metadata_ttl, None, Vec::new())
    }

    /// Objects are treated as these rows say.
    pub(crate) fn with_policies(metadata_ttl: Duration, policies: Vec<PolicyRow>) -> Self {
        Self::start(metadata_ttl, None, policies)
    }

    /// With keys of the gateway's own.
    pub(crate) fn verifying(metadata_ttl: Duration, verify: VerifyConfig) -> Self {
        Self::start(metadata_ttl, Some(verify), Vec::new())
    }

    /// With a cache disk, and hits on it split so.
    pub(crate) fn splitting(metadata_ttl: Duration, split: SplitConfig) -> Self {
        let (store, shard) = (Store::start(), Running::splitting(split));
        let gateway = gateway(store.address(), &shard, metadata_ttl, None, Vec::new());
        Self { store, gateway, shard }
    }

    fn start(metadata_ttl: Duration, verify: Option<VerifyConfig>, policies: Vec<PolicyRow>) -> Self {
        let (store, shard) = (Store::start(), Running::start(true));
        let gateway = gateway(store.address(), &shard, metadata_ttl, verify, policies);
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

/// With which it reads for hits.
pub(crate) const OWN_KEY: &str = "SPLIT";

/// How long a gateway here waits for the head of an answer.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// It waits so long for a head.
pub(crate) const HEAD_WITHIN: Duration = Duration::from_secs(3);

/// Connections that it takes at one time.
pub(crate) const CONNECTIONS_MAX: usize = 64;

/// A gateway before that store, which keeps what it may in that shard.
pub(crate) fn gateway(
    store: SocketAddr,
    shard: &Running,
    metadata_ttl: Duration,
    verify: Option<VerifyConfig>,
    policies: Vec<PolicyRow>,
) -> Gateway {
    let reads = shard.reads.lock().expect("no thread died").take();
    let secret = Secret::new("own").expect("a secret");
    Gateway::start(GatewayConfig {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        backend: format!("http://{store}"),
        authorities: None,
        names: Vec::new(),
        connections_max: CONNECTIONS_MAX,
        answers_within: ANSWERS_WITHIN,
        head_within: HEAD_WITHIN,
        threads: 2,
        events_token: Some(Token::of(TOKEN)),
        verify,
        split_key: reads.as_ref().map(|_| StoreKey::new(OWN_KEY, secret, "r").expect("a key")),
        cache: Some(CacheConfig {
            pool: shard.pool.clone(),
            reads,
            space_bytes: VOLUME_BYTES,
            page_bytes: PAGE_BYTES,
            versions_max: 1000,
            small_bytes: 1 << 20,
            metadata_ttl,
            policies,
        }),
    })
    .expect("it starts")
}

/// Bytes that look random and are the same each time.
pub(crate) fn bytes(seed: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| ((at ^ (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}
