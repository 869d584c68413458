//! Collects a message of known length from input that arrives in pieces of any size.

use alloc::vec::Vec;

/// One message being collected. Memory grows with the bytes that came, not with the length announced.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    bytes: Vec<u8>,
    need: usize,
}

impl Gather {
    pub(crate) fn expecting(need: usize) -> Self {
        Self { bytes: Vec::new(), need }
    }

    /// Drops what was collected and waits for `need` bytes.
    pub(crate) fn expect(&mut self, need: usize) {
        self.bytes.clear();
        self.need = need;
    }

    /// Takes what is missing from `input`; returns how many bytes that was.
    pub(crate) fn fill(&mut self, input: &[u8]) -> usize {
        let taken = input.len().min(self.need - self.bytes.len());
        self.bytes.extend_from_slice(&input[..taken]);
        taken
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() == self.need
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
