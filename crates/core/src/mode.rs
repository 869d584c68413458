//! The write modes, as rows of one table.
//!
//! What a mode means is written here and nowhere else; the code asks the row. To the cache write-back is as write-through:
//! what is behind it is a log that answers ([`crate::log::logged`]).

/// How a volume treats writes (and whether reads are cached at all).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// To the back end and to what is cached; answered when the back end has it.
    Through,
    /// To the back end; cached blocks that it touches are dropped.
    Around,
    /// As if there were no cache.
    Pass,
    /// Reads are cached, writes refused.
    ReadOnly,
    /// To the log, which answers, and to what is cached; the back end follows in order.
    Back,
}

/// What happens to cached blocks that a write touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnWrite {
    Update,
    Drop,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) mode: WriteMode,
    pub(crate) name: &'static str,
    pub(crate) reads_cached: bool,
    pub(crate) writes_allowed: bool,
    pub(crate) on_write: OnWrite,
}

#[rustfmt::skip]
const TABLE: [Row; 5] = [
    Row { mode: WriteMode::Through,  name: "through",   reads_cached: true,  writes_allowed: true,  on_write: OnWrite::Update },
    Row { mode: WriteMode::Around,   name: "around",    reads_cached: true,  writes_allowed: true,  on_write: OnWrite::Drop },
    Row { mode: WriteMode::Pass,     name: "pass",      reads_cached: false, writes_allowed: true,  on_write: OnWrite::Drop },
    Row { mode: WriteMode::ReadOnly, name: "read-only", reads_cached: true,  writes_allowed: false, on_write: OnWrite::Drop },
    Row { mode: WriteMode::Back,     name: "back",      reads_cached: true,  writes_allowed: true,  on_write: OnWrite::Update },
];

impl WriteMode {
    pub(crate) fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The mode's name in configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The mode of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.mode)
    }

    /// Every name, in the table's order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_at_its_modes_place() {
        for row in &TABLE {
            assert_eq!(row.mode.row().mode, row.mode);
            assert_eq!(WriteMode::from_name(row.name), Some(row.mode));
        }
    }
}
