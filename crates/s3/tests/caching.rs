//! The gateway before a store: what comes from the cache is what the store has, for who may read it.

mod rig;

use rig::{World, bytes};
use std::time::Duration;

const OBJECT: u64 = 1_000_000;

fn strict() -> World {
    World::new(Duration::ZERO)
}

#[test]
fn the_second_read_is_a_hit_that_the_store_allowed() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    let etag = world.store.put("/b/k", whole.clone());
    let first = world.get("/b/k", &[]);
    assert_eq!((first.status, first.cache(), first.body == whole), (200, "MISS", true));
    world.settle();
    world.store.seen();
    let second = world.get("/b/k", &[]);
    assert_eq!((second.status, second.cache(), second.body == whole), (200, "HIT", true));
    assert_eq!((second.header("etag"), second.header("content-type")), (etag.as_str(), "text/test"));
    let seen = world.store.seen();
    assert_eq!(seen.len(), 1, "one round trip");
    assert_eq!(seen[0].header("if-none-match"), Some(etag.as_str()));
}

#[test]
fn any_range_of_what_is_here_is_a_hit() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    world.get("/b/k", &[]);
    world.settle();
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=65535-65536", 65535..65537),
        ("bytes=100-", 100..OBJECT),
        ("bytes=-7", OBJECT - 7..OBJECT),
        ("bytes=511-70001", 511..70002),
    ] {
        let answer = world.get("/b/k", &[("Range", range)]);
        assert_eq!((answer.status, answer.cache()), (206, "HIT"), "{range}");
        assert_eq!(answer.header("content-range"), format!("bytes {}-{}/{OBJECT}", part.start, part.end - 1));
        assert!(answer.body == whole[part.start as usize..part.end as usize], "{range}");
    }
}

#[test]
fn a_part_by_its_number_is_a_hit_with_what_the_store_tells_of_parts() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    world.get("/b/k", &[]);
    world.settle();
    for nth in ["first", "second"] {
        for (number, part) in [(1, 0..300_000), (4, 900_000..1_000_000)] {
            // A short answer comes at once when the store is asked which bytes they are.
            let told = if nth == "first" && number == 4 { "MISS" } else { "HIT" };
            let answer = world.get(&format!("/b/k?partNumber={number}"), &[]);
            assert_eq!((answer.status, answer.cache(), answer.header("x-amz-mp-parts-count")), (206, told, "4"));
            assert_eq!(answer.header("content-range"), format!("bytes {}-{}/{OBJECT}", part.start, part.end - 1));
            assert!(answer.body == whole[part], "{number}");
        }
    }
    // What is missing of it is asked for by the number too: a range beside that is refused.
    world.evict(15..16);
    let answer = world.get("/b/k?partNumber=4", &[]);
    assert_eq!((answer.status, answer.cache(), answer.body == whole[900_000..]), (206, "PARTIAL", true));
}

#[test]
fn small_objects_share_a_page_and_no_byte() {
    let world = strict();
    let object = |at: u64| bytes(at, at * 37 % 9000);
    for at in 0..200 {
        world.store.put(&format!("/b/{at}"), object(at));
    }
    for round in ["MISS", "HIT"] {
        for at in 0..200 {
            let answer = world.get(&format!("/b/{at}"), &[]);
            assert!(answer.body == object(at), "{at}");
            assert!(answer.cache() == round || at == 0, "{at}: {}", answer.cache());
            if at % 16 == 15 {
                // More at once than the pool takes fills are left out.
                world.settle();
            }
        }
        world.settle();
    }
}

#[test]
fn a_change_past_the_gateway_is_seen_at_once() {
    let world = strict();
    for version in 0..5 {
        let whole = bytes(version, OBJECT);
        world.store.put("/b/k", whole.clone());
        for round in ["MISS", "HIT"] {
            let answer = world.get("/b/k", &[]);
            assert_eq!((answer.cache(), answer.body == whole), (round, true), "version {version}");
            world.settle();
        }
    }
}

#[test]
fn who_may_not_read_gets_no_hit() {
    let world = strict();
    world.store.put("/b/k", bytes(1, OBJECT));
    assert_eq!(world.get("/b/k", &[("x-caller", "friend")]).status, 200);
    world.settle();
    world.store.inner().denied.push("foe".to_owned());
    let answer = world.get("/b/k", &[("x-caller", "foe")]);
    assert_eq!((answer.status, answer.cache(), answer.body.len() < 100), (403, "BYPASS", true));
    assert_eq!(world.get("/b/k", &[("x-caller", "friend")]).cache(), "HIT");
}

#[test]
fn with_a_ttl_the_store_is_not_asked_again_by_the_same_caller() {
    let world = World::new(Duration::from_secs(600));
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    world.get("/b/k", &[("x-caller", "one")]);
    world.settle();
    world.store.seen();
    let answer = world.get("/b/k", &[("x-caller", "one"), ("Range", "bytes=5-9")]);
    assert_eq!((answer.cache(), answer.body == whole[5..10], answer.header("age")), ("HIT", true, "0"));
    assert_eq!(world.store.seen().len(), 0);
    assert_eq!(world.get("/b/k", &[("x-caller", "two")]).cache(), "REVALIDATED");
    let answer = world.get("/b/k", &[("x-caller", "one"), ("If-None-Match", answer.header("etag"))]);
    assert_eq!((answer.status, answer.body.len()), (304, 0));
    let answer = world.get("/b/k", &[("x-caller", "one"), ("If-Match", "\"other\"")]);
    assert_eq!((answer.status, String::from_utf8_lossy(&answer.body).contains("PreconditionFailed")), (412, true));
    let head = rig::client::ask(world.gateway.address(), "HEAD", "/b/k", &[("x-caller", "one")], b"");
    assert_eq!((head.status, head.cache()), (200, "MISS"), "another request");
    let head = rig::client::ask(world.gateway.address(), "HEAD", "/b/k", &[("x-caller", "one")], b"");
    assert_eq!((head.cache(), head.header("content-length")), ("HIT", "1000000"));
}

#[test]
fn who_names_the_version_gets_a_hit_and_who_names_another_what_the_store_says() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    let etag = world.store.put("/b/k", whole.clone());
    let named = [("If-Match", etag.as_str())];
    for cache in ["MISS", "HIT"] {
        let answer = world.get("/b/k", &named);
        assert_eq!((answer.status, answer.cache(), answer.body == whole), (200, cache, true));
        world.settle();
    }
    assert_eq!(world.store.seen().len(), 2, "one round trip each");
    // What is here is no longer the newest.
    world.store.put("/b/k", bytes(2, OBJECT));
    let answer = world.get("/b/k", &named);
    assert_eq!((answer.status, answer.cache()), (412, "BYPASS"));
    let ours: Vec<_> = world.store.seen().iter().map(|it| it.header("if-none-match").is_some()).collect();
    assert_eq!(ours, [true, false], "the store might have meant our condition");
    let answer = world.get("/b/k", &[("If-Match", "\"other\"")]);
    assert_eq!((answer.status, answer.cache(), world.store.seen().len()), (412, "BYPASS", 1));
}

#[test]
fn a_write_through_the_gateway_is_seen_at_once_despite_the_ttl() {
    let world = World::new(Duration::from_secs(600));
    world.store.put("/b/k", bytes(1, OBJECT));
    for version in 2..6 {
        world.get("/b/k", &[]);
        let whole = bytes(version, OBJECT / 2);
        let put = rig::client::ask(world.gateway.address(), "PUT", "/b/k", &[], &whole);
        assert_eq!(put.status, 200);
        assert!(world.get("/b/k", &[]).body == whole, "version {version}");
    }
}

#[test]
fn what_the_store_breaks_off_is_torn_and_nothing_wrong_is_kept() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    world.store.inner().breaks = Some((300_000, 1));
    assert!(world.get("/b/k", &[]).is_torn);
    world.settle();
    let answer = world.get("/b/k", &[]);
    assert!(!answer.is_torn && answer.body == whole);
    world.settle();
    let answer = world.get("/b/k", &[]);
    assert_eq!((answer.cache(), answer.body == whole), ("HIT", true));
}

#[test]
fn what_is_missing_of_a_hit_comes_from_the_store() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    for signed in [false, true] {
        let headers = match signed {
            false => vec![],
            true => vec![("Authorization", "AWS4-HMAC-SHA256 Credential=A, SignedHeaders=host;range, Signature=0")],
        };
        let mut ranged = headers.clone();
        ranged.push(("Range", "bytes=100-900000"));
        world.get("/b/k", &headers);
        world.get("/b/k", &ranged);
        world.settle();
        world.evict(5..9);
        world.store.seen();
        let answer = world.get("/b/k", &ranged);
        assert_eq!((answer.cache(), answer.body == whole[100..900_001]), ("PARTIAL", true), "signed: {signed}");
        let seen = world.store.seen();
        assert_eq!(seen.len(), 2, "asked whether, and for what is missing");
        assert_eq!(seen[1].header("range").is_some_and(|it| it != "bytes=100-900000"), !signed);
        assert!(seen[1].header("if-match").is_some());
        world.settle();
        assert_eq!(world.get("/b/k", &ranged).cache(), "HIT");
    }
}

#[test]
fn a_fetch_that_breaks_off_is_begun_again() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    world.get("/b/k", &[]);
    world.settle();
    world.evict(3..9);
    world.store.inner().breaks = Some((100_000, 2));
    let answer = world.get("/b/k", &[]);
    assert_eq!((answer.cache(), answer.is_torn, answer.body == whole), ("PARTIAL", false, true));
    world.settle();
    world.evict(3..9);
    world.store.inner().breaks = Some((1000, 10));
    assert!(world.get("/b/k", &[]).is_torn, "not forever");
}

#[test]
fn a_store_that_knows_no_ranges_is_no_harm() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    world.store.inner().ignores_ranges = true;
    let answer = world.get("/b/k", &[("Range", "bytes=5-9")]);
    assert_eq!((answer.status, answer.body == whole), (200, true));
    world.settle();
    world.evict(5..9);
    let answer = world.get("/b/k", &[]);
    assert_eq!((answer.cache(), answer.body == whole), ("PARTIAL", true));
}

#[test]
fn many_who_want_the_same_at_one_time_cost_one_transfer() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    world.store.inner().pause = Duration::from_millis(10);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| assert!(world.get("/b/k", &[]).body == whole));
        }
    });
    let seen = world.store.seen();
    let unconditional = seen.iter().filter(|it| it.header("if-none-match").is_none()).count();
    assert_eq!((unconditional, seen.len()), (1, 12), "one brings the bytes, each is allowed");
}

#[test]
fn an_object_that_changes_while_it_is_fetched_is_torn_and_never_mixed() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    world.get("/b/k", &[]);
    world.settle();
    world.evict(8..16);
    world.store.inner().pause = Duration::from_millis(20);
    let answer = std::thread::scope(|scope| {
        let reading = scope.spawn(|| world.get("/b/k", &[]));
        std::thread::sleep(Duration::from_millis(60));
        world.store.put("/b/k", bytes(2, OBJECT));
        world.store.inner().breaks = Some((10_000, 1));
        reading.join().expect("no panic")
    });
    assert!(answer.body == whole[..answer.body.len()], "bytes of two versions");
}

#[test]
fn what_is_dropped_while_it_is_served_comes_from_the_store() {
    let world = strict();
    let whole = bytes(1, OBJECT);
    let etag = world.store.put("/b/k", whole.clone());
    world.get("/b/k", &[]);
    world.settle();
    world.evict(0..7);
    for at in 0..1001 {
        world.store.put(&format!("/b/other{at}"), Vec::new());
    }
    // While the first pages come, more versions than are known at one time get known.
    world.store.inner().pause = Duration::from_millis(250);
    let answer = std::thread::scope(|scope| {
        let reading = scope.spawn(|| world.get("/b/k", &[]));
        std::thread::sleep(Duration::from_millis(100));
        for at in 0..1001 {
            rig::client::ask(world.gateway.address(), "HEAD", &format!("/b/other{at}"), &[], b"");
        }
        assert!(!reading.is_finished(), "that took too long");
        world.store.inner().pause = Duration::ZERO;
        reading.join().expect("no panic")
    });
    assert_eq!((answer.cache(), answer.is_torn, answer.body == whole), ("PARTIAL", false, true));
    let seen = world.store.seen();
    let fetches: Vec<_> = seen.iter().filter(|it| it.header("if-match") == Some(&etag)).collect();
    // What has its addresses now may be another's.
    assert!(fetches.len() >= 2, "the rest came from the cache");
}
