//! What the operator is told and does: counts, where objects are, forgetting them.

mod rig;

use forebay_core::Residency;
use forebay_objects::{REASONS, Selection};
use forebay_s3::{Forgotten, Operator, Place};
use rig::{World, bytes};
use std::time::Duration;

const OBJECT: u64 = 1_000_000;

fn selection(text: &str) -> Selection {
    Selection::of(text).expect("well-formed")
}

fn strict() -> (World, Operator) {
    let world = World::new(Duration::ZERO);
    let operator = world.gateway.operator();
    (world, operator)
}

/// What of the object space's first bytes is here.
fn residency(world: &World, bytes: u64) -> Residency {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(world.shard.pool.probe(0..bytes)).expect("an answer")
}

#[test]
fn requests_and_bytes_count_where_they_came_from() {
    let (world, operator) = strict();
    world.store.put("/b/k", bytes(1, OBJECT));
    world.store.put("/b/small", bytes(2, 5000));
    for _ in 0..2 {
        assert_eq!(world.get("/b/k", &[]).status, 200);
        assert_eq!(world.get("/b/small", &[("Range", "bytes=0-99")]).status, 206);
        assert_eq!(world.get("/b/none", &[]).status, 404);
        world.get("/b/small", &[]);
        world.settle();
    }
    world.evict(4..8);
    assert_eq!(world.get("/b/k", &[]).cache(), "PARTIAL");
    let put = rig::client::ask(world.gateway.address(), "PUT", "/b/k", &[], b"new");
    assert_eq!(put.status, 200);
    world.settle();
    let figures = operator.figures();
    let counted = figures.counted;
    let by_outcome = |at: usize| counted.requests[0].map(|classes| classes[at]);
    assert_eq!(by_outcome(1), [3, 0, 1, 3, 0, 0], "2xx by outcome");
    assert_eq!(by_outcome(3), [0, 0, 0, 0, 2, 0], "4xx by outcome");
    assert_eq!(counted.requests[3][4][1], 1, "the change");
    let why = |word: &str| counted.reasons[REASONS.iter().position(|it| it.0 == word).expect("a reason")];
    assert_eq!((why("status"), why("change"), why("other")), (2, 1, 0));
    let gap = 4 * 65_536;
    let [cache, copy, passed, fetched] = counted.sent_bytes;
    assert_eq!((cache, fetched), (2 * OBJECT - gap, gap));
    assert_eq!(copy, 5000 + 100);
    assert!(passed >= OBJECT + 5000 + 100, "{passed}");
    assert_eq!(counted.asked, [6, 4, 1, 0]);
    assert_eq!((counted.away, counted.late, counted.refused), (0, 0, 0));
    let answers: u64 = counted.requests.iter().flatten().flatten().sum();
    let durations: u64 = counted.durations.iter().flat_map(|it| &it.buckets).map(|it| it.1).sum();
    assert_eq!((answers, durations, counted.connections), (10, 10, 10));
    assert_eq!((figures.connections_open, figures.gauges.versions), (0, 2));
}

#[test]
fn a_store_that_is_away_is_counted() {
    let gone = forebay_s3::Gateway::start(forebay_s3::GatewayConfig {
        events_token: None,
        verify: None,
        split_key: None,
        listen: (std::net::Ipv4Addr::LOCALHOST, 0).into(),
        backend: "http://127.0.0.1:1".to_owned(),
        authorities: None,
        names: Vec::new(),
        connections_max: 1,
        answers_within: Duration::from_secs(5),
        head_within: Duration::from_secs(10),
        threads: 1,
        cache: None,
    })
    .expect("it starts");
    assert_eq!(rig::client::ask(gone.address(), "GET", "/b/k", &[], b"").status, 503);
    let counted = gone.operator().figures().counted;
    assert_eq!((counted.away, counted.late, counted.requests[0][5][4]), (1, 0, 1));
}

#[test]
fn where_a_version_is_is_told_by_extents() {
    let (world, operator) = strict();
    world.store.put("/b/k", bytes(1, OBJECT));
    world.store.put("/b/l", bytes(2, 700));
    assert!(operator.find(&selection("s3://")).versions.is_empty());
    for path in ["/b/k", "/b/l", "/b/l"] {
        world.get(path, &[]);
        world.settle();
    }
    world.evict(4..8);
    let found = operator.find(&selection("s3://b"));
    assert_eq!((found.versions.len(), found.has_more), (2, false));
    let (k, l) = (&found.versions[0], &found.versions[1]);
    let extents: Vec<_> = k.extents.iter().map(|it| (it.first, it.bytes, it.place)).collect();
    let (page, gap) = (65_536, 4 * 65_536);
    let all =
        [(0, 4 * page, Place::Memory), (4 * page, gap, Place::Absent), (8 * page, OBJECT - 8 * page, Place::Memory)];
    assert_eq!(extents, all);
    assert_eq!((k.bytes_in(Place::Memory), k.bytes_in(Place::Absent)), (OBJECT - gap, gap));
    assert!(!k.has_copy && l.has_copy && l.bytes_in(Place::Memory) == 700);
    assert!(k.current_age_ns.is_some_and(|age_ns| age_ns < 20_000_000_000));
}

#[test]
fn what_is_forgotten_is_a_miss_and_its_pages_are_gone() {
    let (world, operator) = strict();
    for path in ["/b/k", "/b/small", "/c/k"] {
        world.store.put(path, bytes(1, if path == "/b/small" { 3000 } else { OBJECT / 2 }));
        world.get(path, &[]);
        world.settle();
        assert_eq!(world.get(path, &[]).cache(), "HIT");
    }
    assert_eq!(operator.forget(&selection("s3://b/none*")), Ok(Forgotten::default()));
    assert_eq!(operator.forget(&selection("s3://b")), Ok(Forgotten { versions: 2, bytes: OBJECT / 2 + 3000 }));
    assert_eq!(residency(&world, OBJECT / 1024 * 512).memory_bytes, 0);
    for (path, cache) in [("/b/k", "MISS"), ("/b/small", "MISS"), ("/c/k", "HIT")] {
        assert_eq!(world.get(path, &[]).cache(), cache, "{path}");
    }
    world.settle();
    assert_eq!(operator.forget(&selection("s3://")).map(|it| it.versions), Ok(3));
    assert_eq!(residency(&world, 40 * 65_536).memory_bytes, 0);
}

#[test]
fn a_body_under_way_is_whole_and_brings_nothing_back_when_its_version_is_forgotten() {
    for is_hit in [false, true] {
        let (world, operator) = strict();
        let whole = bytes(3, OBJECT);
        world.store.put("/b/k", whole.clone());
        if is_hit {
            world.get("/b/k", &[]);
            world.settle();
            world.evict(4..8);
        }
        world.store.inner().pause = Duration::from_millis(if is_hit { 30 } else { 10 });
        let answer = std::thread::scope(|scope| {
            let reading = scope.spawn(|| world.get("/b/k", &[]));
            let begun =
                || operator.find(&selection("s3://b/k")).versions.iter().any(|it| it.bytes_in(Place::Memory) > 0);
            while !begun() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(50));
            assert!(!reading.is_finished(), "the store is too quick for this test");
            assert_eq!(operator.forget(&selection("s3://b/k")).map(|it| it.versions), Ok(1));
            reading.join().expect("it does not panic")
        });
        assert_eq!(answer.cache(), if is_hit { "PARTIAL" } else { "MISS" });
        assert!(!answer.is_torn && answer.body == whole);
        world.settle();
        assert_eq!(residency(&world, OBJECT / 512 * 512).memory_bytes, 0, "hit: {is_hit}");
        assert!(operator.find(&selection("s3://")).versions.is_empty());
        assert_eq!(world.get("/b/k", &[]).cache(), "MISS");
    }
}

#[test]
fn why_an_answer_was_not_kept_is_remembered_by_name() {
    let (world, operator) = strict();
    world.store.put("/b/k", bytes(1, 100));
    world.get("/b/k", &[("Cache-Control", "no-store")]);
    world.get("/b/k", &[]);
    world.get("/b/none", &[]);
    let notes = |key: &str| -> Vec<(&str, u16)> {
        let Selection::One(name, _) = selection(&format!("s3://b/{key}")) else { panic!("one") };
        operator.notes(&name).iter().map(|(_, note)| (REASONS[note.reason].0, note.status)).collect()
    };
    assert_eq!((notes("k"), notes("none"), notes("other")), (vec![("no-store", 200)], vec![("status", 404)], vec![]));
}
