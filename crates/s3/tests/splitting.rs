//! Hits on the cache disk that the store serves: the bytes are those of the version that was confirmed, wherever they come from.

mod rig;

use forebay_core::{SplitConfig, SplitKind};
use forebay_s3::Counted;
use rig::store::Seen;
use rig::{OWN_KEY, World, bytes};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const OBJECT: u64 = 4_000_000;
const BELIEVED: Duration = Duration::from_secs(600);

fn split(kind: SplitKind) -> SplitConfig {
    SplitConfig { kind, backend_bytes_per_second_max: 0 }
}

/// The object is on the cache disk, but for what memory has of it.
fn with_object(metadata_ttl: Duration, split: SplitConfig) -> (World, Vec<u8>) {
    let world = World::splitting(metadata_ttl, split);
    let whole = bytes(1, OBJECT);
    world.store.put("/b/k", whole.clone());
    assert_eq!(world.get("/b/k", &[]).cache(), "MISS");
    world.settle();
    let second = world.get("/b/k", &[]);
    assert!(second.cache() != "MISS" && second.body == whole, "{}", second.cache());
    world.settle();
    world.store.seen();
    (world, whole)
}

fn read(world: &World, whole: &[u8]) {
    let answer = world.get("/b/k", &[]);
    assert_eq!((answer.status, answer.cache(), answer.body == whole), (200, "HIT", true));
}

fn counted(world: &World) -> Counted {
    world.gateway.operator().figures().counted
}

/// Bytes that were asked for in the gateway's own name.
fn asked_bytes(seen: &[Seen]) -> u64 {
    let range = |seen: &Seen| {
        let (first, last) = seen.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some(last.parse::<u64>().ok()? - first.parse::<u64>().ok()? + 1)
    };
    seen.iter().filter(|it| it.header("if-match").is_some()).filter_map(range).sum()
}

#[test]
fn a_share_of_the_hits_on_disk_comes_from_the_store() {
    let (world, whole) = with_object(BELIEVED, split(SplitKind::Static { disk_permil: 500 }));
    let before = world.shard.seen();
    (0..4).for_each(|_| read(&world, &whole));
    let after = world.shard.seen();
    let (disk, store) = (after.disk_hits - before.disk_hits, after.backend_hits - before.backend_hits);
    assert!(disk > 50 && store.abs_diff(disk) <= disk / 4, "{disk} pages from the disk, {store} from the store");
    assert_eq!((after.split_failovers, after.split_mismatches), (0, 0));
    let seen = world.store.seen();
    assert!(asked_bytes(&seen) >= (store - 4) * 65_536, "{} bytes", asked_bytes(&seen));
    assert!(seen.iter().all(|it| it.path == "/b/k" && it.header("if-match") == Some("\"e1\"")), "{seen:?}");
    let signed = |it: &Seen| it.header("authorization").is_some_and(|it| it.contains(&format!("={OWN_KEY}/")));
    assert!(seen.iter().all(signed), "{seen:?}");
    assert!(world.shard.stop(), "something is under way");
}

#[test]
fn what_lies_together_is_one_request() {
    let (world, whole) = with_object(BELIEVED, split(SplitKind::BackendOnly));
    let before = counted(&world);
    read(&world, &whole);
    let after = counted(&world);
    let (requests, pages) = (after.asked[3] - before.asked[3], after.addressed[0] - before.addressed[0]);
    assert!(pages > 40 && requests * 3 <= pages, "{pages} pages by {requests} requests");
    assert_eq!(requests, world.store.seen().len() as u64);
}

#[test]
fn an_object_that_was_overwritten_is_served_from_the_disk_while_it_is_believed() {
    let (world, whole) = with_object(BELIEVED, split(SplitKind::BackendOnly));
    for replaced in [true, false] {
        if replaced {
            world.store.put("/b/k", bytes(2, OBJECT));
        } else {
            world.store.inner().objects.clear();
        }
        let before = (world.shard.seen(), counted(&world));
        (0..2).for_each(|_| read(&world, &whole));
        let (seen, after) = (world.shard.seen(), counted(&world));
        assert!(after.addressed[1] - before.1.addressed[1] > 80, "{:?}", after.addressed);
        assert_eq!(after.addressed[0], before.1.addressed[0], "none of another version's bytes is taken");
        assert_eq!(seen.split_failovers, before.0.split_failovers, "the store is well");
    }
}

#[test]
fn when_the_store_is_away_all_hits_come_from_the_disk() {
    let (world, whole) = with_object(BELIEVED, split(SplitKind::BackendOnly));
    world.store.inner().is_away = true;
    let before = world.shard.seen();
    (0..4).for_each(|_| read(&world, &whole));
    let after = world.shard.seen();
    assert!(after.disk_hits - before.disk_hits > 100, "the store is left alone");
    assert!(after.split_failovers > before.split_failovers);
    assert_eq!(after.read_errors, before.read_errors);
    world.store.inner().is_away = false;
    std::thread::sleep(Duration::from_millis(1100));
    read(&world, &whole);
    assert!(world.shard.seen().backend_hits > after.backend_hits, "and asked again later");
}

#[test]
fn a_store_that_does_not_answer_keeps_nobody_waiting() {
    let (world, whole) = with_object(BELIEVED, split(SplitKind::BackendOnly));
    world.store.inner().delay = Duration::from_secs(4);
    let begun = Instant::now();
    (0..3).for_each(|_| read(&world, &whole));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(counted(&world).addressed[2] > 0);
}

#[test]
fn the_store_gives_no_more_than_the_budget() {
    let rate = 1 << 20;
    let split = SplitConfig { kind: SplitKind::BackendOnly, backend_bytes_per_second_max: rate };
    let (world, whole) = with_object(BELIEVED, split);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        read(&world, &whole);
    }
    let most = (begun.elapsed().as_secs_f64() + 0.2) * rate as f64;
    let bytes = asked_bytes(&world.store.seen());
    assert!(bytes > rate / 2 && (bytes as f64) < most, "{bytes} of {most}");
}

#[test]
fn a_slow_disk_is_helped_by_the_store() {
    let (world, whole) = with_object(BELIEVED, split(SplitKind::ExpectedDelay));
    let before = world.shard.seen();
    world.shard.pace.set(20 << 20, 2_000_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..4).for_each(|_| read(&world, &whole)));
        }
    });
    let after = world.shard.seen();
    let (disk, store) = (after.disk_hits - before.disk_hits, after.backend_hits - before.backend_hits);
    assert!(store > disk / 4, "{disk} pages from the disk, {store} from the store");
}

#[test]
fn what_rots_on_the_disk_is_read_from_the_store() {
    let (world, whole) = with_object(BELIEVED, split(SplitKind::CacheOnly));
    let disk = world.shard.directory.path().join("disk");
    let file = std::fs::File::options().write(true).open(disk).expect("the cache disk");
    // All slots.
    let rot = vec![0xa5; 1 << 20];
    (2..64).for_each(|mib| file.write_all_at(&rot, mib << 20).expect("written"));
    file.sync_all().expect("written");
    read(&world, &whole);
    assert!(asked_bytes(&world.store.seen()) > OBJECT / 2);
}

#[test]
fn what_the_cache_lacks_is_asked_for_in_the_callers_name() {
    let (world, whole) = with_object(BELIEVED, split(SplitKind::BackendOnly));
    world.evict(20..30);
    let before = counted(&world);
    let answer = world.get("/b/k", &[("x-caller", "one"), ("Range", "bytes=1310720-1966079")]);
    assert_eq!((answer.status, answer.body == whole[1_310_720..1_966_080]), (206, true));
    let after = counted(&world);
    assert_eq!(after.addressed, before.addressed, "nothing is read by addresses");
    assert!(world.store.seen().iter().all(|it| it.header("x-caller") == Some("one")));
}

#[test]
fn small_objects_that_share_a_page_are_their_own() {
    let world = World::splitting(BELIEVED, split(SplitKind::BackendOnly));
    // Larger than what is kept as a copy.
    let object = |at: u64| bytes(at, 17_000 + at * 997 % 9000);
    let path = |at: u64| format!("/b/{at}%20x");
    for at in 0..100 {
        world.store.put(&path(at), object(at));
        assert!(world.get(&path(at), &[]).body == object(at), "{at}");
        if at % 16 == 15 {
            world.settle();
        }
    }
    world.settle();
    for at in 0..100 {
        assert!(world.get(&path(at), &[]).body == object(at), "{at}");
    }
    let counted = counted(&world);
    assert!(counted.addressed[0] > 50, "{:?}", counted.addressed);
    assert_eq!(world.shard.seen().split_mismatches, 0);
}
