//! Who tells of changes past the gateway is believed enough to ask the store.

mod rig;

use rig::client::ask;
use rig::{TOKEN, World, bytes};
use std::time::Duration;

const EVENT: &str = r#"{"Records":[{"s3":{"bucket":{"name":"b"},"object":{"key":"k"}}}]}"#;

fn tell(world: &World, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let answer = ask(world.gateway.address(), "POST", path, headers, body.as_bytes());
    (answer.status, String::from_utf8(answer.body).expect("text"))
}

#[test]
fn what_is_told_of_is_asked_for_anew_within_the_ttl() {
    let world = World::new(Duration::from_secs(60));
    let (old, new) = (bytes(1, 300_000), bytes(2, 300_000));
    world.store.put("/b/k", old.clone());
    world.get("/b/k", &[]);
    world.settle();
    world.store.put("/b/k", new.clone());
    assert!(world.get("/b/k", &[]).body == old, "nobody told");
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(
        tell(&world, "/.forebay/events", &[("authorization", &bearer)], EVENT),
        (200, "{\"names\": \"1\"}\n".into())
    );
    assert!(world.get("/b/k", &[]).body == new);
    let seen = world.store.seen();
    assert!(seen.iter().all(|it| it.path == "/b/k"), "the store is not told");
}

#[test]
fn who_does_not_know_the_token_or_tells_nonsense_is_refused() {
    let world = World::new(Duration::from_secs(60));
    let with_token = format!("/.forebay/events?token={TOKEN}");
    for (path, body, status, said) in [
        ("/.forebay/events", EVENT, 401, "s3.events_token"),
        ("/.forebay/events?token=x", EVENT, 401, "s3.events_token"),
        (&*with_token, "{\"a\"", 400, "EOF while parsing"),
        (&*with_token, "{}", 400, "there is no Records"),
        (&*with_token, &"7".repeat((1 << 20) + 1), 400, "length limit exceeded"),
    ] {
        let (got, text) = tell(&world, path, &[], body);
        assert!(got == status && text.contains(said), "{path}: {got} {text}");
    }
    let get = world.get(&with_token, &[]);
    assert_eq!(get.status, 405);
    assert_eq!(tell(&world, "/.forebay/else", &[], EVENT).0, 404, "other names are the store's");
}
