//! Operations that a device has in hand, found by index: the index is the token that the layer below gets.
//!
//! Finding an operation again is one array access, and after the table has grown to its working size nothing is
//! allocated. Bounded: a device that is offered more than it may hold refuses.

/// Entries by index; the indices of ended ones are used again.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
    capacity: u32,
}

impl<T> Pending<T> {
    /// An empty table of at most `capacity` entries.
    pub(crate) fn new(capacity: u32) -> Self {
        Self { entries: Vec::new(), free: Vec::new(), capacity }
    }

    /// Enters `entry` and says where; gives it back when the table is full.
    pub(crate) fn insert(&mut self, entry: T) -> Result<u32, T> {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(entry);
            return Ok(index);
        }
        if self.entries.len() >= self.capacity as usize {
            return Err(entry);
        }
        self.entries.push(Some(entry));
        Ok(self.entries.len() as u32 - 1)
    }

    /// The entry at `index`. Panics if it has ended: a bug.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        match self.entries.get_mut(index as usize) {
            Some(Some(entry)) => entry,
            _ => panic!("operation {index} is not in flight"),
        }
    }

    /// All entries.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }

    /// Where an entry is that `is` picks.
    pub(crate) fn find(&self, is: impl Fn(&T) -> bool) -> Option<u32> {
        self.entries.iter().position(|entry| entry.as_ref().is_some_and(&is)).map(|at| at as u32)
    }

    /// Ends the entry at `index`. Panics if it has ended: a bug.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        match self.entries.get_mut(index as usize).and_then(Option::take) {
            Some(entry) => {
                self.free.push(index);
                entry
            }
            None => panic!("operation {index} is not in flight"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_gives_the_entry_back_and_an_ended_one_makes_room() {
        let mut pending = Pending::new(2);
        assert_eq!(pending.insert('a'), Ok(0));
        assert_eq!(pending.insert('b'), Ok(1));
        assert_eq!(pending.insert('c'), Err('c'));
        assert_eq!(pending.remove(0), 'a');
        assert_eq!(pending.insert('c'), Ok(0));
        assert_eq!(*pending.get_mut(0), 'c');
    }

    #[test]
    #[should_panic(expected = "not in flight")]
    fn an_operation_that_ends_twice_is_a_bug() {
        let mut pending = Pending::new(1);
        let index = pending.insert(()).unwrap();
        pending.remove(index);
        pending.remove(index);
    }
}
