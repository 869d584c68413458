//! What every device refuses before it starts: operations that are misaligned, leave it, or that it cannot do.

use crate::device::{DeviceOp, Geometry, IoError, OpKind};

/// Whether the device takes this operation at all.
pub(crate) fn check(geometry: &Geometry, op: &DeviceOp) -> Result<(), IoError> {
    if op.kind == OpKind::Flush {
        return Ok(());
    }
    let sector = u64::from(geometry.sector_bytes);
    let aligned = op.offset.is_multiple_of(sector) && op.length.is_multiple_of(sector) && op.length > 0;
    let inside = op.offset.checked_add(op.length).is_some_and(|end| end <= geometry.bytes);
    let length_max = match op.kind {
        OpKind::Trim { .. } | OpKind::WriteZeroes { .. } => geometry.range_bytes_max,
        _ => u64::from(u32::MAX),
    };
    let writes = op.kind != OpKind::Read;
    if writes && geometry.read_only {
        return Err(IoError::Unsupported);
    }
    if !aligned || !inside || op.length > length_max { Err(IoError::Failed) } else { Ok(()) }
}
