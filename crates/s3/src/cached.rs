//! Cached: what the gateway knows and keeps, shared by all its threads.
//!
//! How: [`Objects`] decides, behind one lock that is held for a look-up and no longer; [`Pool`] has the bytes. A task of its own
//! cleans addresses before they are given out again.

use crate::counts::Counts;
use crate::device::StoreReads;
use crate::flight::Flights;
use crate::multipart::ASSEMBLIES_MAX;
use crate::pool::Pool;
use crate::small::Small;
use forebay_core::{BLOCK_BYTES, PROBE_PAGES_MAX, Residency};
use forebay_objects::{Assembly, Held, Kept, Notes, Objects, ObjectsConfig, PolicyRow, VersionId};
use hyper::body::Bytes;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How often it is looked whether addresses are to be cleaned.
const CLEAN_PERIOD: Duration = Duration::from_secs(1);

/// How objects are cached.
#[derive(Debug)]
pub struct CacheConfig {
    /// Where the bytes are.
    pub pool: Pool,
    /// What the shard reads from the store, where it may.
    pub reads: Option<StoreReads>,
    /// Bytes of the object space.
    pub space_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Versions of objects that are known at one time.
    pub versions_max: usize,
    /// Copies of small objects take so much.
    pub small_bytes: usize,
    /// The store's yes is believed for so long, where no policy says another time; zero: not at all.
    pub metadata_ttl: Duration,
    /// How some objects are treated, the first row first; [`forebay_objects::ROWS_MAX`] at most.
    pub policies: Vec<PolicyRow>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) pool: Pool,
    pub(crate) page_bytes: u64,
    pub(crate) flights: Arc<Flights>,
    pub(crate) small: Small,
    pub(crate) counts: Arc<Counts>,
    /// Objects that are to be put together.
    pub(crate) assemblies: Sender<Assembly>,
    notes: Mutex<Notes>,
    objects: Mutex<Objects>,
    started: Instant,
}

impl Cached {
    /// With what is to be put together ([`crate::multipart::assemble`]).
    pub(crate) fn new(config: CacheConfig, counts: Arc<Counts>) -> (Arc<Self>, Receiver<Assembly>) {
        let of_objects = ObjectsConfig {
            space_bytes: config.space_bytes,
            page_bytes: u64::from(config.page_bytes),
            block_bytes: u64::from(BLOCK_BYTES),
            versions_max: config.versions_max,
            metadata_ttl_ns: config.metadata_ttl.as_nanos() as u64,
        };
        let objects = Objects::with_policies(&of_objects, config.policies);
        let (assemblies, to_assemble) = channel(ASSEMBLIES_MAX);
        let cached = Arc::new(Self {
            pool: config.pool,
            page_bytes: u64::from(config.page_bytes),
            flights: Arc::default(),
            small: Small::new(config.small_bytes),
            counts,
            assemblies,
            notes: Mutex::default(),
            objects: Mutex::new(objects),
            started: Instant::now(),
        });
        (cached, to_assemble)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// A thread that died of a bug left whole entries behind: each is changed in one call.
    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why answers were not kept.
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the addresses still are the version's.
    pub(crate) fn is_kept(&self, kept: &Kept) -> bool {
        self.is_known(kept.id)
    }

    /// Whether a version was not dropped: what was read of it until now was its own.
    pub(crate) fn is_known(&self, id: VersionId) -> bool {
        self.objects().catalogue().get(id).is_some()
    }

    /// Cleans addresses ahead of need, forever.
    pub(crate) async fn clean(self: Arc<Self>) {
        loop {
            tokio::time::sleep(CLEAN_PERIOD).await;
            let Some(range) = self.objects().to_clean() else { continue };
            // What was received for the versions that had them must not come after this.
            self.flights.settled().await;
            match self.pool.evict(range).await {
                Ok(()) => self.objects().cleaned(),
                Err(error) => {
                    tracing::warn!(?error, "addresses of old objects could not be cleaned: new ones may not be cached");
                }
            }
        }
    }

    /// Drops what is cached of a version that is forgotten. A page that others share ages out.
    pub(crate) fn evict_whole_pages(&self, addresses: Range<u64>) {
        let page = self.page_bytes;
        let pages = addresses.start.next_multiple_of(page)..addresses.end / page * page;
        if !pages.is_empty() {
            self.pool.start_evict(pages);
        }
    }

    /// All of a small object, if it is here: a copy.
    pub(crate) async fn at_hand(&self, held: &Held) -> Option<Bytes> {
        if let Some(bytes) = self.small.find(held.id) {
            return Some(bytes);
        }
        let sectors = Self::sectors(&(held.start..held.start + held.bytes));
        let pages = match sectors.is_empty() {
            true => Vec::new(),
            false => self.pool.read(sectors, None).await.ok()?,
        };
        let mut copy: Vec<u8> = Vec::with_capacity(held.bytes as usize + 512);
        pages.iter().for_each(|page| copy.extend_from_slice(page.as_ref()));
        copy.truncate(held.bytes as usize);
        if !self.is_known(held.id) {
            return None;
        }
        let bytes = Bytes::from(copy);
        self.small.keep(held.id, bytes.clone());
        Some(bytes)
    }

    /// Bytes of a range of addresses that are not here.
    pub(crate) async fn missing(&self, range: &Range<u64>) -> u64 {
        let (mut range, mut missing) = (range.clone(), 0);
        while !range.is_empty() {
            let end = self.look_end(&range);
            missing += self.look(&(range.start..end)).await.absent_bytes;
            range.start = end;
        }
        missing
    }

    /// Where a range of addresses is, or its beginning if that is long. What cannot be found out is not here.
    pub(crate) async fn look(&self, range: &Range<u64>) -> Residency {
        let range = range.start..self.look_end(range);
        let bytes = range.end - range.start;
        let sectors = Self::sectors(&range);
        let Ok(found) = self.pool.probe(sectors.clone()).await else {
            return Residency { absent_bytes: bytes, gap_bytes: bytes, ..Residency::default() };
        };
        // Counted from the first sector's beginning.
        let before = range.start - sectors.start;
        let leading_bytes = found.leading_bytes.saturating_sub(before).min(bytes);
        let gap_end = (found.leading_bytes + found.gap_bytes).saturating_sub(before).min(bytes);
        Residency { leading_bytes, gap_bytes: gap_end - leading_bytes, ..found }
    }

    /// Where what is looked at at once ends.
    pub(crate) fn look_end(&self, range: &Range<u64>) -> u64 {
        let end = (range.start / self.page_bytes).saturating_add(PROBE_PAGES_MAX).saturating_mul(self.page_bytes);
        end.min(range.end)
    }

    /// The whole sectors that a range of addresses lies in.
    pub(crate) fn sectors(range: &Range<u64>) -> Range<u64> {
        range.start & !511..range.end.next_multiple_of(512)
    }
}
