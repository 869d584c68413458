//! The pool, before a real shard: what is filled is read, from threads that are not the shard's; what is lent is given back.

mod rig;

use forebay_core::ReplyError;
use hyper::body::Bytes;
use rig::shard::{PAGE, Running, VOLUME_BYTES};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn bytes(seed: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}

fn joined(pages: &[forebay_s3::Page]) -> Vec<u8> {
    pages.iter().flat_map(|page| page.as_ref().to_vec()).collect()
}

#[test]
fn what_was_filled_in_any_pieces_is_read_as_one() {
    let running = Running::start(false);
    let pool = running.pool.clone();
    runtime().block_on(async {
        let range = 3 * PAGE..6 * PAGE;
        let whole = bytes(1, range.end - range.start);
        // Cut where neither pages nor blocks end; an empty one is no harm.
        let cuts = [0, 1, 4095, 4097, 70_000, 70_000, 150_000, whole.len()];
        let pieces = cuts.windows(2).map(|cut| Bytes::copy_from_slice(&whole[cut[0]..cut[1]])).collect();
        assert_eq!(pool.probe(range.clone()).await.expect("an answer").absent_bytes, 3 * PAGE);
        pool.fill(range.clone(), pieces).await.expect("it is taken");
        assert_eq!(pool.probe(range.clone()).await.expect("an answer").memory_bytes, 3 * PAGE);
        let pages = pool.read(range.start + 512..range.end - 1024, None).await.expect("an answer");
        assert_eq!(joined(&pages), whole[512..whole.len() - 1024]);
        // What was not filled comes from the back end.
        assert_eq!(joined(&pool.read(0..PAGE, None).await.expect("an answer")), vec![0; PAGE as usize]);
        assert_eq!(pool.read(VOLUME_BYTES..VOLUME_BYTES + 512, None).await.err(), Some(ReplyError::Invalid));
        drop(pages);
    });
    assert!(running.stop(), "something is held");
}

#[test]
fn many_at_once_read_what_they_filled_and_keep_it_while_they_hold_it() {
    let running = Running::start(false);
    let runtime = runtime();
    let tasks: Vec<_> = (0..16u64)
        .map(|who| {
            let pool = running.pool.clone();
            runtime.spawn(async move {
                for round in 0..40u64 {
                    let start = (who * 40 + round) * PAGE;
                    let whole = bytes(start, PAGE);
                    pool.fill(start..start + PAGE, vec![Bytes::from(whole.clone())]).await.expect("it is taken");
                    let pages = pool.read(start..start + PAGE, None).await.expect("an answer");
                    tokio::task::yield_now().await;
                    // Memory holds a tenth of all: it is perhaps evicted, and read from the back end, which has zeroes.
                    let read = joined(&pages);
                    assert!(read == whole || read.iter().all(|it| *it == 0), "{start}: another's bytes");
                    let other = pool.read(0..4096, None).await.map(|it| joined(&it));
                    assert!(other.is_ok_and(|it| it == bytes(0, 4096) || it.iter().all(|it| *it == 0)));
                    assert_eq!(joined(&pages), read, "it changed while it was lent");
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no panic");
        }
    });
    assert!(running.stop(), "something is held");
}

#[test]
fn who_does_not_wait_for_the_answer_holds_nothing() {
    let running = Running::start(false);
    let pool = running.pool.clone();
    runtime().block_on(async {
        for at in 0..100u64 {
            let read = pool.read(at * PAGE..(at + 1) * PAGE, None);
            // Polled once, and dropped.
            let _ = tokio::time::timeout(std::time::Duration::ZERO, read).await;
        }
        assert!(pool.read(0..PAGE, None).await.is_ok());
    });
    // What came back after its asker had gone is on its way once more.
    std::thread::sleep(std::time::Duration::from_millis(200));
    running.wake.wake();
    assert!(running.stop(), "something is held");
}
