//! Changes through the gateway: told before they leave, and when they are answered or never will be.

use super::{Due, Gateway};
use crate::objects::bug::Bug;
use crate::objects::met::Count;
use forebay_objects::http::Method;
use forebay_objects::{Change, Target};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Put,
    Delete,
    DeleteMany,
}

pub(super) struct Changing {
    change: Option<Change>,
    what: What,
    keys: Vec<usize>,
    arrived_ns: Option<u64>,
    is_lost: bool,
    is_back: bool,
}

impl Gateway {
    /// The process ends: what was on its way to the store arrives, or not.
    pub fn abandon(&mut self) {
        for (_, changing) in std::mem::take(&mut self.changes) {
            if changing.arrived_ns.is_none() && self.dice.chance(500) {
                self.apply(&changing);
            }
        }
    }

    pub(super) fn begin_change(&mut self, key: usize) {
        let other = self.dice.below(self.changed_ns.len() as u64) as usize;
        let what = match self.dice.below(20) {
            0 => What::DeleteMany,
            1 | 2 => What::Delete,
            _ => What::Put,
        };
        let (target, keys) = match what {
            What::Put => (Target::of(&Method::PUT, &format!("/b/{key}"), None, None, &[]), vec![key]),
            What::Delete => (Target::of(&Method::DELETE, &format!("/b/{key}"), None, None, &[]), vec![key]),
            What::DeleteMany => (Target::of(&Method::POST, "/b", Some("delete"), None, &[]), vec![key, other]),
        };
        let change = (!self.has(Bug::ChangeUntold)).then(|| self.objects.changing(&target)).flatten();
        let is_lost = self.dice.chance(80);
        let number = self.number();
        self.changes.insert(number, Changing { change, what, keys, arrived_ns: None, is_lost, is_back: false });
        self.later(Due::ChangeArrive(number));
        if is_lost {
            self.later(Due::ChangeBack(number));
        }
    }

    fn apply(&mut self, changing: &Changing) {
        let now_ns = self.now_ns();
        for key in &changing.keys {
            let mut store = self.shared.store.borrow_mut();
            let what = match changing.what {
                What::Put if store.put(now_ns, *key, &mut self.dice) => Count::PutAgain,
                What::Put => Count::Put,
                What::Delete => Count::Delete,
                What::DeleteMany => Count::DeleteMany,
            };
            if changing.what != What::Put {
                store.delete(now_ns, *key);
            }
            drop(store);
            self.count(what, *key as u64, 0);
        }
    }

    pub(super) fn change_arrives(&mut self, number: u64) {
        let mut changing = self.changes.remove(&number).expect("it is under way");
        self.apply(&changing);
        changing.arrived_ns = Some(self.now_ns());
        match (changing.is_lost, changing.is_back) {
            (true, true) => {}
            (is_lost, _) => {
                self.changes.insert(number, changing);
                if !is_lost {
                    self.later(Due::ChangeBack(number));
                }
            }
        }
    }

    pub(super) fn change_is_back(&mut self, number: u64) {
        let mut changing = self.changes.remove(&number).expect("it is under way");
        if let Some(change) = changing.change.take() {
            self.objects.changed(change);
        }
        if changing.is_lost {
            self.count(Count::ChangeLost, number, 0);
            changing.is_back = true;
            if changing.arrived_ns.is_none() {
                self.changes.insert(number, changing);
            }
        } else {
            let arrived_ns = changing.arrived_ns.expect("it was answered");
            changing.keys.iter().for_each(|key| self.changed_ns[*key] = self.changed_ns[*key].max(arrived_ns));
        }
        self.end();
    }
}
