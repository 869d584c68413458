//! What the shard asks of the machine: the generation file, back ends' times of modification, the log.

use super::logs::VolumeLog;
use forebay_core::{IoError, Notice, VolumeId};
use forebay_engine::devices::spec::BackendSpec;
use forebay_engine::shard::Host;
use forebay_engine::state::GenerationFile;
use forebay_uring::{Wake, monotonic_ns};

/// At most one line a second about bad blocks: a dying disk has many.
const BAD_BLOCK_LOG_NS: u64 = 1_000_000_000;

/// See the module.
pub(super) struct ShardHost {
    volumes: Vec<String>,
    /// By volume.
    backends: Vec<BackendSpec>,
    generation: Option<GenerationFile>,
    /// By volume.
    logs: Vec<Option<VolumeLog>>,
    wake: Wake,
    bad_blocks: u64,
    bad_block_logged_ns: u64,
}

impl ShardHost {
    pub(super) fn new(volumes: Vec<String>, backends: Vec<BackendSpec>, wake: Wake) -> Self {
        let logs = backends.iter().map(|_| None).collect();
        Self { volumes, backends, generation: None, logs, wake, bad_blocks: 0, bad_block_logged_ns: 0 }
    }

    /// There is a cache disk, and these logs are on it.
    pub(super) fn attached(&mut self, generation: GenerationFile, logs: Vec<Option<VolumeLog>>) {
        self.generation = Some(generation);
        self.logs = logs;
    }

    /// The write-back logs, by volume.
    pub(super) fn logs(&self) -> &[Option<VolumeLog>] {
        &self.logs
    }

    fn bad_block(&mut self, slot: u32, page: u32) {
        self.bad_blocks += 1;
        let now_ns = monotonic_ns();
        if self.bad_blocks == 1 || now_ns >= self.bad_block_logged_ns + BAD_BLOCK_LOG_NS {
            self.bad_block_logged_ns = now_ns;
            tracing::warn!(
                slot,
                page,
                so_far = self.bad_blocks,
                "a block on the cache disk is not what was written; it is fetched again"
            );
        }
    }
}

impl Host for ShardHost {
    fn raise_generation(&mut self) {
        if let Some(generation) = &mut self.generation {
            generation.raise(self.wake.clone());
        }
    }

    fn generation_raised(&mut self) -> Option<Result<(), IoError>> {
        let raised = self.generation.as_mut()?.raised()?;
        if let Err(error) = &raised {
            tracing::error!("{error}");
        }
        Some(raised.map_err(|_| IoError::Failed))
    }

    fn backend_mtime_ns(&mut self, volume: VolumeId) -> i64 {
        // Objects are of no file.
        self.backends.get(volume.index()).map_or(0, BackendSpec::mtime_ns)
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::BadBlock { slot, key } => self.bad_block(slot.0, key.page),
            Notice::DiskDetached { reason } => {
                tracing::error!(
                    reason,
                    "the cache disk is given up; the cache goes on without it: replace it and restart"
                );
            }
            Notice::Recovered { pages, dropped } => {
                tracing::info!(pages, dropped, "the slot table is read; the cache is warm")
            }
            Notice::GenerationStuck => {
                tracing::error!(
                    "the generation file cannot be written, so writes fail: make room in the state directory"
                );
            }
            Notice::BackendLost { volume } => {
                let volume = &self.volumes[volume.index()];
                tracing::error!(
                    volume,
                    "the back end may have lost writes it had answered; their pages were dropped and the flush failed"
                );
            }
        }
    }
}
