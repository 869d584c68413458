//! Policies: objects of some names are treated otherwise.

mod rig;

use forebay_objects::{Pattern, PolicyRow, WriteMode};
use rig::client::ask;
use rig::{World, bytes};
use std::time::Duration;

const OBJECT: u64 = 300_000;

fn row(pattern: &str) -> PolicyRow {
    let pattern = Pattern::of(pattern).expect("a pattern");
    PolicyRow { pattern, cache: None, metadata_ttl_ns: None, write: None }
}

#[test]
fn what_is_not_to_be_cached_is_passed_both_ways() {
    let world = World::with_policies(Duration::ZERO, vec![PolicyRow { cache: Some(false), ..row("b/*.tmp") }]);
    let whole = bytes(1, OBJECT);
    let put = ask(world.gateway.address(), "PUT", "/b/x.tmp", &[("x-forebay-write", "through")], &whole);
    assert_eq!((put.status, put.header("cache-status")), (200, "forebay; fwd=bypass; detail=policy"));
    for _ in 0..2 {
        let read = world.get("/b/x.tmp", &[]);
        assert_eq!((read.cache(), read.header("cache-status")), ("BYPASS", "forebay; fwd=bypass; detail=policy"));
        assert!(read.body == whole);
        world.settle();
    }
    world.store.put("/b/x", whole);
    world.get("/b/x", &[]);
    world.settle();
    assert_eq!(world.get("/b/x", &[]).cache(), "HIT", "others are");
}

#[test]
fn a_ttl_is_of_some_objects_and_no_others() {
    let policies = vec![PolicyRow { metadata_ttl_ns: Some(60_000_000_000), ..row("b/links/*") }];
    let world = World::with_policies(Duration::ZERO, policies);
    for path in ["/b/links/x", "/b/x"] {
        world.store.put(path, bytes(1, OBJECT));
        world.get(path, &[]);
        world.settle();
        world.store.seen();
        assert_eq!(world.get(path, &[]).cache(), "HIT");
        assert_eq!(world.store.seen().len(), usize::from(path == "/b/x"), "{path}: how often the store was asked");
    }
}

#[test]
fn uploads_are_kept_by_policy_and_a_request_may_choose_otherwise() {
    let policies = vec![PolicyRow { write: Some(WriteMode::Through), ..row("b") }];
    let world = World::with_policies(Duration::ZERO, policies);
    let told = |path: &str, headers: &[(&str, &str)]| {
        let put = ask(world.gateway.address(), "PUT", path, headers, &bytes(1, OBJECT));
        put.header("cache-status").to_owned()
    };
    assert_eq!(told("/b/x", &[]), "forebay; fwd=method; stored");
    assert_eq!(told("/b/x", &[("x-forebay-write", "around")]), "forebay; fwd=bypass; detail=change");
    assert_eq!(told("/c/x", &[]), "forebay; fwd=bypass; detail=change");
}
