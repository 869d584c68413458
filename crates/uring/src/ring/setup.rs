//! Making an io_uring: the fastest flags the kernel takes, and a plain word when it takes none.
//!
//! The flags, best first. One thread submits and reaps, and wants completions only when it asks:
//! `DEFER_TASKRUN` (Linux 6.1) then runs all completion work in the wait, in one batch;
//! `COOP_TASKRUN` (5.19) at least never interrupts. Without either, the kernel interrupts the
//! thread for each completion. `SQPOLL` would burn a core and `IOPOLL` excludes sockets: rejected.

use io_uring::{Builder, IoUring};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};

/// Longest submission queue: more operations than this are submitted in several batches.
const SQ_ENTRIES_MAX: u32 = 256;

pub(super) type Tier = fn(&mut Builder);

pub(super) const TIERS: [Tier; 3] = [
    |builder| {
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    },
    |builder| {
        builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
    },
    |_| {},
];

/// A ring with the first of `tiers` that the kernel takes, whose completion queue has room for
/// `ops_max` operations and as many cancellations.
pub(super) fn build(ops_max: u32, tiers: &[Tier]) -> Result<IoUring, Error> {
    let entries = ops_max.next_power_of_two().min(SQ_ENTRIES_MAX);
    let mut refusal = Errno::INVAL;
    for tier in tiers {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize((2 * ops_max).max(2 * entries));
        tier(&mut builder);
        match builder.build(entries) {
            Ok(io) => return check_features(io),
            Err(error) => refusal = errno_of(&error),
        }
        if refusal != Errno::INVAL {
            break;
        }
    }
    Err(explain(refusal, io_uring_disabled()))
}

fn check_features(io: IoUring) -> Result<IoUring, Error> {
    let features = io.params();
    if features.is_feature_ext_arg() && features.is_feature_nodrop() && features.is_feature_submit_stable() {
        return Ok(io);
    }
    let message = "io_uring of this kernel is too old: Linux 5.11 or newer is needed";
    Err(Error::new(ErrorKind::Unavailable, None, message))
}

/// The sysctl `kernel.io_uring_disabled`: 0 on, 1 for privileged processes, 2 off; `None` before
/// Linux 6.6.
fn io_uring_disabled() -> Option<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

/// Why the kernel refused to make a ring, and what to do.
fn explain(refusal: Errno, disabled: Option<u8>) -> Error {
    let (kind, why) = match (refusal, disabled) {
        (Errno::NOSYS, _) => (
            ErrorKind::Unavailable,
            "this kernel has no io_uring: use Linux 5.11 or newer, built with CONFIG_IO_URING".to_owned(),
        ),
        (Errno::PERM, Some(setting @ 1..)) => (
            ErrorKind::Unavailable,
            format!("kernel.io_uring_disabled is {setting}: set it to 0 (sysctl -w kernel.io_uring_disabled=0)"),
        ),
        (Errno::PERM | Errno::ACCESS, _) => (
            ErrorKind::Unavailable,
            "a security filter forbids io_uring: allow io_uring_setup, io_uring_enter and io_uring_register in the \
             seccomp profile (containers: --security-opt seccomp=PROFILE)"
                .to_owned(),
        ),
        (Errno::NOMEM, _) => (
            ErrorKind::Limit,
            "no memory for io_uring: raise the limit on locked memory (ulimit -l, LimitMEMLOCK=)".to_owned(),
        ),
        (Errno::MFILE | Errno::NFILE, _) => {
            (ErrorKind::Limit, "too many open files: raise the limit (ulimit -n, LimitNOFILE=)".to_owned())
        }
        (errno, _) => (ErrorKind::Unavailable, format!("the kernel refused to make an io_uring: {errno}")),
    };
    Error::new(kind, Some(refusal), why)
}

/// The error number behind an error of the io-uring crate, which always has one.
pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_cause() {
        let cases = [
            (Errno::NOSYS, None, "CONFIG_IO_URING"),
            (Errno::PERM, Some(2), "kernel.io_uring_disabled is 2"),
            (Errno::PERM, Some(0), "seccomp"),
            (Errno::PERM, None, "seccomp"),
            (Errno::NOMEM, Some(0), "ulimit -l"),
            (Errno::MFILE, Some(0), "ulimit -n"),
            (Errno::FAULT, Some(0), "refused"),
        ];
        for (errno, disabled, expected) in cases {
            let message = explain(errno, disabled).to_string();
            assert!(message.contains(expected), "{errno}: {message}");
        }
    }
}
