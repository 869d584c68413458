//! Reads by addresses, for the shard's device: looked up, asked of the store, and what came compared, each at an instant of its own.

use super::{Due, Gateway};
use crate::objects::bug::Bug;
use crate::objects::met::Count;
use crate::objects::store::{Answer, Question};
use forebay_engine::device::{DeviceOp, IoError};
use forebay_objects::http::header::{IF_MATCH, RANGE};
use forebay_objects::http::request::Parts;
use forebay_objects::{Judged, Spec, Stretch};

/// A read under way.
pub(super) struct Addressed {
    op: DeviceOp,
    stretch: Option<Stretch>,
    answer: Option<Answer>,
}

impl Gateway {
    /// What the shard asked in its last turn.
    pub(super) fn take_addresses(&mut self) {
        let (asked, given_up) = self.desk.borrow_mut().take();
        for op in asked {
            let number = self.number();
            self.addressed.insert(number, Addressed { op, stretch: None, answer: None });
            self.later(Due::LookUp(number));
        }
        for token in given_up {
            let found = self.addressed.iter().find(|(_, it)| it.op.token == token).map(|(number, _)| *number);
            if let Some(number) = found {
                self.count(Count::AddressGivenUp, number, token);
                self.end_address(number, Err(IoError::Failed), Vec::new());
            }
        }
    }

    fn end_address(&mut self, number: u64, result: Result<(), IoError>, bytes: Vec<u8>) {
        let addressed = self.addressed.remove(&number).expect("it is under way");
        self.desk.borrow_mut().end(addressed.op.token, result, bytes);
    }

    pub(super) fn look_up(&mut self, number: u64) {
        let Some(addressed) = self.addressed.get_mut(&number) else { return };
        let op = addressed.op;
        addressed.stretch = self.objects.stretch(op.offset..op.offset + op.length);
        if addressed.stretch.is_none() {
            self.count(Count::AddressUnknown, number, op.offset);
            return self.end_address(number, Err(IoError::Declined), Vec::new());
        }
        self.later(Due::AddressArrive(number));
    }

    /// The instant at which the store looks.
    pub(super) fn address_arrives(&mut self, number: u64) {
        let is_unchecked = self.has(Bug::AddressUnchecked);
        let Some(addressed) = self.addressed.get_mut(&number) else { return };
        let stretch = addressed.stretch.as_ref().expect("it was looked up");
        let mut question = question(&stretch.request().expect("an ETag is a header"));
        if is_unchecked {
            (question.id, question.if_match) = (None, None);
        }
        addressed.answer = Some(self.shared.store.borrow().answer(&question));
        self.later(Due::AddressBack(number));
    }

    pub(super) fn address_is_back(&mut self, number: u64) {
        let Some(addressed) = self.addressed.get(&number) else { return };
        let stretch = addressed.stretch.as_ref().expect("it was looked up");
        let answer = addressed.answer.as_ref().expect("it was asked");
        let is_bytes = stretch.judge(answer.status, &answer.headers) == Judged::Bytes;
        let body = answer.body.clone().filter(|_| is_bytes || self.has(Bug::AddressUnchecked));
        let length = addressed.op.length as usize;
        let Some((version, part)) = body else {
            self.count(Count::AddressChanged, number, 0);
            return self.end_address(number, Err(IoError::Declined), Vec::new());
        };
        let mut bytes = version.content(part);
        // Behind the object's end.
        bytes.resize(length, 0);
        if self.dice.chance(50) {
            self.count(Count::AddressBroken, number, length as u64);
            bytes.truncate(length / 2);
            let result = if self.has(Bug::AddressTorn) { Ok(()) } else { Err(IoError::Failed) };
            return self.end_address(number, result, bytes);
        }
        self.count(Count::AddressServed, number, length as u64);
        self.end_address(number, Ok(()), bytes);
    }
}

/// What a request of the gateway's own asks for.
fn question(request: &Parts) -> Question {
    let header = |name| request.headers.get(name).and_then(|it| it.to_str().ok()).expect("it is asked so");
    let key = request.uri.path().rsplit('/').next().and_then(|it| it.parse().ok()).expect("keys are numbers");
    let id = request.uri.query().and_then(|it| it.strip_prefix("versionId=")?.parse().ok());
    let Some(Spec::From(from, to)) = Spec::of(header(RANGE)) else { panic!("a part is asked for") };
    let if_match = Some(header(IF_MATCH).to_owned());
    Question { key, method: request.method.clone(), id, range: Some((from, to)), if_match, if_none_match: None }
}
