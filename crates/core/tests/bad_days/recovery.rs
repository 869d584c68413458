//! What is asked of the cache while it still reads its table.

use crate::driver::{Action, Event, MS, PAGE, VOLUME, World, WriteMode, config, is};
use forebay_core::SlotRecord;

/// A cache whose table, once scanned, says that slot 0 holds page 3.
fn recovering() -> World {
    let mut config = config(WriteMode::Through);
    config.recover = true;
    let mut w = World::new(config);
    w.tick(MS);
    w
}

fn scan_ends(w: &mut World) {
    let op = w.find(is!(Action::ScanTable { .. })).expect("the table is being read");
    w.open.retain(|action| !matches!(action, Action::ScanTable { .. }));
    let mut records = vec![SlotRecord { space: 0, page: 0 }; 512];
    records[0] = SlotRecord { space: 1, page: 3 };
    let crcs = vec![1; 512 * 16];
    w.step(Event::TableScanned { op, first_slot: 0, records: &records, crcs: &crcs });
    w.tick(100 * MS);
}

#[test]
fn a_page_that_was_scanned_is_hit() {
    let mut w = recovering();
    scan_ends(&mut w);
    w.read(1, 3 * PAGE, 4096);
    assert_eq!(w.count(is!(Action::ReadSlot { .. })), 1);
}

#[test]
fn what_was_evicted_meanwhile_does_not_come_back() {
    let mut w = recovering();
    w.step(Event::Evict { volume: VOLUME, tag: 1, offset: 0, length: 64 << 20 });
    assert!(!w.is_answered(1), "evicted before it was known");
    w.read(2, 5 * PAGE, 4096);
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 1, "nobody waits for the eviction meanwhile");
    w.answer(Ok(()), is!(Action::ReadBackend { .. }));
    w.sent(2);
    scan_ends(&mut w);
    w.settle();
    assert!(w.is_answered(1));
    w.read(3, 3 * PAGE, 4096);
    assert_eq!(w.count(is!(Action::ReadSlot { .. })), 0);
    assert_eq!(w.count(is!(Action::ReadBackend { .. })), 1);
}
