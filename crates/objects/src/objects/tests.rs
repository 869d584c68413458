//! Plans beside a store that says yes and no, and whose objects change.

use super::*;
use crate::headers;
use http::{Method, Uri};
use proptest::prelude::*;

const PAGE: u64 = 65_536;
const SECOND: u64 = 1_000_000_000;
const CALLER: (&str, &str) = ("x-caller", "1");

fn objects(metadata_ttl_ns: u64) -> Objects {
    let space_bytes = PAGE * 64 * 1024;
    Objects::new(&ObjectsConfig {
        space_bytes,
        page_bytes: PAGE,
        block_bytes: 4096,
        versions_max: 100,
        metadata_ttl_ns,
    })
}

/// A read, and who asks.
fn read(method: &Method, uri: &str, given: &[(&str, &str)]) -> (Read, Who) {
    let uri: Uri = uri.parse().expect("a URI");
    let headers = headers(given);
    let target = Target::of(method, uri.path(), uri.query(), None, &[]);
    (Read::of(&target, uri.query(), &headers).expect("a read"), Who::of(method, &uri, &headers))
}

fn get(given: &[(&str, &str)]) -> (Read, Who) {
    read(&Method::GET, "/b/k", given)
}

fn plan(objects: &mut Objects, now_ns: u64, (read, who): &(Read, Who)) -> Plan {
    objects.plan(now_ns, read, Some((*who, u64::MAX)))
}

/// The answer to a read of all of an object.
fn whole(etag: &str, bytes: u64) -> HeaderMap {
    headers(&[("etag", etag), ("content-length", &bytes.to_string()), ("content-type", "text/x")])
}

fn learn(objects: &mut Objects, now_ns: u64, asked: &(Read, Who), status: u16, headers: &HeaderMap) -> Option<Kept> {
    let learning = match plan(objects, now_ns, asked) {
        Plan::Learn(learning) => learning,
        Plan::Confirm(held) => held.learning,
        other => panic!("the store is not asked: {other:?}"),
    };
    kept(objects.learned(&asked.0, &learning, StatusCode::from_u16(status).expect("a status"), headers))
}

fn kept(learned: Learned) -> Option<Kept> {
    match learned {
        Learned::Keep(kept) => Some(kept),
        Learned::Known | Learned::Not(_) => None,
    }
}

#[test]
fn what_is_forgotten_is_asked_for_anew_and_gets_other_addresses() {
    let mut objects = objects(SECOND);
    let asked = get(&[]);
    let kept = learn(&mut objects, 0, &asked, 200, &whole("\"e\"", 9)).expect("kept");
    let Plan::Serve(held, _) = plan(&mut objects, 1, &asked) else { panic!("it is known") };
    let selection = Selection::of("s3://b/k*").expect("well-formed");
    let forgotten = objects.forget(&selection, None, 10);
    assert_eq!((forgotten.len(), forgotten[0].id, forgotten[0].start), (1, kept.id, kept.start));
    assert_eq!(objects.confirmed(&asked.0, &held, &headers(&[])), Confirmed::Again, "what was asked before");
    assert!(matches!(plan(&mut objects, 2, &asked), Plan::Learn(_)), "the permit leads nowhere");
    let again = learn(&mut objects, 3, &asked, 200, &whole("\"e\"", 9)).expect("kept");
    assert!(again.id != kept.id && again.start != kept.start);
    let gauges = objects.gauges();
    assert_eq!((gauges.versions, gauges.version_bytes, gauges.permits, gauges.given_bytes), (1, 9, 1, 2 * 4096));
}

#[test]
fn what_was_learned_is_confirmed_and_answers_any_part() {
    let mut objects = objects(0);
    let kept = learn(&mut objects, 0, &get(&[]), 200, &whole("\"e\"", 100_000)).expect("kept");
    assert_eq!((kept.part.clone(), kept.bytes), (0..100_000, 100_000));
    let asked = get(&[("range", "bytes=-5")]);
    let Plan::Confirm(held) = plan(&mut objects, 1, &asked) else { panic!("it is known") };
    assert_eq!(
        (&*held.etag, held.start, held.part.clone(), held.status.as_u16()),
        ("\"e\"", kept.start, 99_995..100_000, 206)
    );
    assert_eq!(objects.confirmed(&asked.0, &held, &headers(&[("etag", "\"e\"")])), Confirmed::Serve);
    let told = held.told(&asked.0, Some(&headers(&[("x-amz-request-id", "7")])));
    for (name, value) in [
        ("content-range", "bytes 99995-99999/100000"),
        ("content-type", "text/x"),
        ("etag", "\"e\""),
        ("x-amz-request-id", "7"),
    ] {
        assert_eq!(told.get(name).expect(name), value);
    }
    assert!(matches!(plan(&mut objects, 1, &get(&[("range", "bytes=100000-")])), Plan::Learn(_)), "the store says 416");
    assert!(matches!(plan(&mut objects, 1, &get(&[("if-match", "\"e\"")])), Plan::Confirm(_)), "the same question");
    for own in [
        ("if-match", "\"other\""),
        ("if-none-match", "\"other\""),
        ("if-unmodified-since", "Tue, 01 Jan 2030 00:00:01 GMT"),
    ] {
        assert!(matches!(plan(&mut objects, 1, &get(&[own])), Plan::Learn(_)), "the store judges {own:?}");
    }
    assert!(matches!(plan(&mut objects, 1, &read(&Method::HEAD, "/b/k", &[])), Plan::Learn(_)));
    assert!(matches!(plan(&mut objects, 1, &get(&[("origin", "x")])), Plan::Pass("cross-origin")));
}

#[test]
fn a_part_by_its_number_is_what_the_store_said_it_is() {
    let mut objects = objects(0);
    let by_number = |number: u32| read(&Method::GET, &format!("/b/k?partNumber={number}"), &[]);
    learn(&mut objects, 0, &get(&[]), 200, &whole("\"e\"", 100)).expect("kept");
    assert!(matches!(plan(&mut objects, 1, &by_number(2)), Plan::Learn(_)), "only the store knows its parts");
    let mut part = whole("\"e\"", 10);
    part.insert("content-range", "bytes 50-59/100".parse().expect("a value"));
    part.insert("x-amz-mp-parts-count", "3".parse().expect("a value"));
    assert_eq!(learn(&mut objects, 2, &by_number(2), 206, &part).expect("kept").part, 50..60);
    let Plan::Confirm(held) = plan(&mut objects, 3, &by_number(2)) else { panic!("it is known") };
    assert_eq!((held.part.clone(), held.status.as_u16(), held.is_numbered), (50..60, 206, true));
    let told = held.told(&by_number(2).0, None);
    assert_eq!(
        (&told["content-range"], &told["x-amz-mp-parts-count"]),
        (&part["content-range"], &part["x-amz-mp-parts-count"])
    );
    assert!(matches!(plan(&mut objects, 3, &by_number(3)), Plan::Learn(_)));
    let Plan::Confirm(held) = plan(&mut objects, 3, &get(&[])) else { panic!("it is known") };
    assert!(!held.headers.contains_key("x-amz-mp-parts-count"), "that is told of parts");
    // A store that does not say which bytes a part is.
    assert!(learn(&mut objects, 4, &by_number(3), 200, &whole("\"e\"", 10)).is_none());
    let Plan::Confirm(held) = plan(&mut objects, 5, &get(&[])) else { panic!("it is known") };
    assert_eq!(held.bytes, 100, "the length of a part is not the object's");
}

#[test]
fn what_is_told_otherwise_now_is_asked_for_again() {
    let mut objects = objects(0);
    let mut answer = whole("\"e\"", 9);
    answer.insert("last-modified", "Tue, 01 Jan 2030 00:00:00 GMT".parse().expect("a value"));
    learn(&mut objects, 0, &get(&[]), 200, &answer).expect("kept");
    let asked = get(&[]);
    let Plan::Confirm(held) = plan(&mut objects, 1, &asked) else { panic!("it is known") };
    for (given, confirmed) in [
        (&[][..], Confirmed::Serve),
        (&[("last-modified", "Tue, 01 Jan 2030 00:00:00 GMT")], Confirmed::Serve),
        (&[("last-modified", "Tue, 01 Jan 2030 00:00:01 GMT")], Confirmed::Again),
        (&[("etag", "\"f\"")], Confirmed::Again),
        (&[("etag", "e")], Confirmed::Serve),
    ] {
        assert_eq!(objects.confirmed(&asked.0, &held, &headers(given)), confirmed, "{given:?}");
    }
    objects.distrust(held.id);
    assert_eq!(objects.confirmed(&asked.0, &held, &headers(&[])), Confirmed::Again);
}

#[test]
fn a_yes_is_believed_for_its_time_by_the_same_request() {
    let mut objects = objects(10 * SECOND);
    learn(&mut objects, 0, &get(&[CALLER]), 200, &whole("\"e\"", 9)).expect("kept");
    let Plan::Serve(_, 0) = plan(&mut objects, 9 * SECOND, &get(&[CALLER])) else { panic!("it was allowed") };
    assert!(matches!(plan(&mut objects, 9 * SECOND, &get(&[])), Plan::Confirm(_)), "another caller");
    assert!(matches!(plan(&mut objects, 10 * SECOND, &get(&[CALLER])), Plan::Confirm(_)), "too late");
    assert!(matches!(plan(&mut objects, 9 * SECOND, &get(&[CALLER, ("cache-control", "no-cache")])), Plan::Confirm(_)));
    let Plan::Serve(held, _) = plan(&mut objects, 9 * SECOND, &get(&[CALLER, ("if-none-match", "\"e\"")])) else {
        panic!("it was allowed")
    };
    assert_eq!(held.status, StatusCode::NOT_MODIFIED);
    // The store says no.
    let asked = get(&[CALLER, ("cache-control", "no-cache")]);
    assert_eq!(learn(&mut objects, 9 * SECOND, &asked, 403, &headers(&[])), None);
    assert!(matches!(plan(&mut objects, 9 * SECOND, &get(&[CALLER])), Plan::Confirm(_)), "it was taken back");
}

#[test]
fn a_change_takes_effect_at_once_and_what_was_asked_before_is_not_believed() {
    let mut objects = objects(10 * SECOND);
    let asked = get(&[]);
    let Plan::Learn(early) = plan(&mut objects, 0, &asked) else { panic!("nothing is known") };
    learn(&mut objects, 0, &asked, 200, &whole("\"e\"", 9)).expect("kept");
    let change = objects.changing(&Target::of(&Method::PUT, "/b/k", None, None, &[])).expect("of an object");
    let Plan::Learn(during) = plan(&mut objects, 1, &asked) else { panic!("it is being changed") };
    objects.changed(change);
    for learning in [early, during] {
        let learned = objects.learned(&asked.0, &learning, StatusCode::OK, &whole("\"e\"", 9));
        assert_eq!(learned, Learned::Not("changed-meanwhile"));
    }
    assert!(matches!(plan(&mut objects, 2, &asked), Plan::Learn(_)));
    learn(&mut objects, 2, &asked, 200, &whole("\"f\"", 9)).expect("kept");
    let change = objects.changing(&Target::of(&Method::POST, "/b", Some("delete"), None, &[])).expect("of a bucket");
    assert!(matches!(plan(&mut objects, 3, &asked), Plan::Confirm(_)), "the bucket is being changed");
    objects.changed(change);
    assert!(matches!(plan(&mut objects, 3, &asked), Plan::Confirm(_)), "it was changed since");
}

#[test]
fn an_answer_that_does_not_say_what_it_is_is_not_kept() {
    for (status, given) in [
        (200, &[("etag", "\"e\"")][..]),
        (200, &[("content-length", "9")]),
        (200, &[("etag", "W/\"e\""), ("content-length", "9")]),
        (200, &[("etag", "\"e\""), ("content-length", "-9")]),
        (200, &[("etag", "\"e\""), ("content-length", "9"), ("vary", "cookie")]),
        (206, &[("etag", "\"e\""), ("content-length", "9")]),
        (206, &[("etag", "\"e\""), ("content-length", "9"), ("content-range", "bytes 0-9/10")]),
        (206, &[("etag", "\"e\""), ("content-length", "9"), ("content-range", "bytes 0-8/*")]),
        (203, &[("etag", "\"e\""), ("content-length", "9")]),
        (403, &[("etag", "\"e\""), ("content-length", "9")]),
        (416, &[("etag", "\"e\""), ("content-length", "9")]),
    ] {
        assert_eq!(learn(&mut objects(0), 0, &get(&[]), status, &headers(given)), None, "{status} {given:?}");
    }
    let named = read(&Method::GET, "/b/k?versionId=1", &[]);
    let mut other = whole("\"e\"", 9);
    other.insert(VERSION_ID, HeaderValue::from_static("2"));
    assert_eq!(learn(&mut objects(0), 0, &named, 200, &other), None, "another version than the one that was named");
}

#[test]
fn a_version_is_found_by_its_own_id_too() {
    let mut objects = objects(0);
    let mut answer = whole("\"e\"", 9);
    answer.insert(VERSION_ID, HeaderValue::from_static("v1"));
    let kept = learn(&mut objects, 0, &get(&[]), 200, &answer).expect("kept");
    answer.insert(VERSION_ID, HeaderValue::from_static("v2"));
    assert_ne!(learn(&mut objects, 0, &get(&[]), 200, &answer).expect("kept").start, kept.start);
    let Plan::Confirm(held) = plan(&mut objects, 1, &read(&Method::GET, "/b/k?versionId=v1", &[])) else {
        panic!("it is known")
    };
    assert_eq!(held.start, kept.start);
}

#[test]
fn what_a_head_told_is_known_and_brings_no_bytes() {
    let mut objects = objects(0);
    let asked = read(&Method::HEAD, "/b/k", &[]);
    assert_eq!(learn(&mut objects, 0, &asked, 200, &whole("\"e\"", 9)), None);
    assert!(matches!(plan(&mut objects, 0, &get(&[])), Plan::Confirm(_)));
    let asked = get(&[]);
    assert_eq!(learn(&mut objects, 0, &asked, 404, &headers(&[])), None);
    assert!(matches!(plan(&mut objects, 0, &get(&[])), Plan::Learn(_)), "it is gone");
}

/// A store with one object, that two callers may or may not read.
struct Store {
    etag: u64,
    allows: [bool; 2],
    /// When each ETag before this one was replaced.
    replaced_ns: Vec<u64>,
    /// When the caller was denied last.
    denied_ns: [u64; 2],
}

impl Store {
    fn replace(&mut self, now_ns: u64) {
        self.replaced_ns.push(now_ns);
        self.etag += 1;
    }

    /// Since when it has not been this one.
    fn is_since(&self, etag_told: &str) -> Option<u64> {
        (0..self.etag).find(|it| etag(*it) == etag_told).map(|it| self.replaced_ns[it as usize])
    }
}

proptest! {
    /// Nothing is served that the store would not have answered within the time that its yes is believed.
    #[test]
    fn nothing_is_served_that_the_store_did_not_allow(
        ttl_s in 0..4u64,
        steps in proptest::collection::vec((0..8u8, 0..2usize, 0..3u64), 1..200),
    ) {
        let mut objects = objects(ttl_s * SECOND);
        let mut store = Store { etag: 0, allows: [true; 2], replaced_ns: Vec::new(), denied_ns: [0; 2] };
        let mut now_ns = 10 * SECOND;
        let mut late: Vec<(usize, Learning, u64)> = Vec::new();
        for (what, who, seconds) in steps {
            now_ns += seconds * SECOND;
            let asked = get(&[("x-caller", ["1", "2"][who])]);
            match what {
                0..4 => match plan(&mut objects, now_ns, &asked) {
                    Plan::Serve(held, confirmed_ns) => {
                        prop_assert!(now_ns - confirmed_ns < ttl_s * SECOND);
                        let since = store.is_since(&held.etag);
                        prop_assert!(since.is_none_or(|since| now_ns - since < ttl_s * SECOND), "an old one, too late");
                        let is_denied = !store.allows[who];
                        prop_assert!(!is_denied || now_ns - store.denied_ns[who] < ttl_s * SECOND, "denied, too late");
                    }
                    Plan::Confirm(held) => {
                        if store.allows[who] && *held.etag == etag(store.etag) {
                            prop_assert_eq!(objects.confirmed(&asked.0, &held, &headers(&[])), Confirmed::Serve);
                        } else {
                            answer(&mut objects, &store, who, &asked.0, &held.learning);
                        }
                    }
                    Plan::Learn(learning) => match what {
                        0 if store.allows[who] => late.push((who, learning, store.etag)),
                        _ => answer(&mut objects, &store, who, &asked.0, &learning),
                    },
                    Plan::Pass(why) => prop_assert!(false, "{}", why),
                },
                4 => {
                    // Through the gateway.
                    let change = objects.changing(&Target::of(&Method::PUT, "/b/k", None, None, &[])).expect("of an object");
                    store.replace(now_ns);
                    objects.changed(change);
                    prop_assert!(!matches!(plan(&mut objects, now_ns, &asked), Plan::Serve(..)), "an old one");
                }
                5 => {
                    // Past it.
                    store.replace(now_ns);
                }
                6 => {
                    store.allows[who] = !store.allows[who];
                    if !store.allows[who] {
                        store.denied_ns[who] = now_ns;
                    }
                }
                _ => {
                    // An answer that was under way all the time.
                    if let Some((who, learning, asked_etag)) = late.pop() {
                        let asked = get(&[("x-caller", ["1", "2"][who])]);
                        if let Learned::Keep(kept) = objects.learned(&asked.0, &learning, StatusCode::OK, &whole(&etag(asked_etag), 9)) {
                            let identity = objects.catalogue().get(kept.id).expect("just linked").0;
                            prop_assert_eq!(&*identity.etag, &*etag(asked_etag), "bytes of another version");
                        }
                    }
                }
            }
        }
    }
}

fn etag(number: u64) -> String {
    format!("\"{number}\"")
}

fn answer(objects: &mut Objects, store: &Store, who: usize, read: &Read, learning: &Learning) {
    let (status, headers) = match store.allows[who] {
        true => (StatusCode::OK, whole(&etag(store.etag), 9)),
        false => (StatusCode::FORBIDDEN, headers(&[])),
    };
    objects.learned(read, learning, status, &headers);
}
