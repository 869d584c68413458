//! `forebay flush`, `forebay mode` and `forebay evict`: orders to a running server.

use super::follow::follow;
use super::{complain, objects, print, print_json};
use crate::admin_client::{AdminClient, AskError};
use crate::arguments::{Evict, Flush, FlushTo, LiveMode, Mode, Output};
use crate::exit::Exit;
use serde_json::json;

pub(crate) fn flush(arguments: &Flush, output: Output) -> Exit {
    let client = AdminClient::new(arguments.running.admin);
    let flush = |volume: &str| {
        client.flush(volume)?;
        match arguments.to {
            FlushTo::Log => Ok(()),
            FlushTo::Backend => follow(&client, volume),
        }
    };
    let results: Vec<_> = arguments.volumes.iter().map(|volume| (volume.as_str(), flush(volume))).collect();
    told("flushed", &results, output)
}

/// `forebay mode`.
pub(crate) fn mode(arguments: &Mode, output: Output) -> Exit {
    let client = AdminClient::new(arguments.running.admin);
    let volume = arguments.volume.as_str();
    let mode = arguments.mode.name();
    let switch = || {
        client.mode(volume, mode)?;
        if arguments.mode == LiveMode::Through { follow(&client, volume) } else { Ok(()) }
    };
    told(mode, &[(volume, switch())], output)
}

pub(crate) fn evict(arguments: &Evict, output: Output) -> Exit {
    if objects::is_object(&arguments.volume) {
        if arguments.range.is_some() {
            complain(&format!("{}: a range is of a volume; evict the whole object", arguments.volume));
            return Exit::Usage;
        }
        return objects::evict(&arguments.volume, &arguments.running, output);
    }
    let range = arguments.range.unwrap_or_default();
    let result = AdminClient::new(arguments.running.admin).evict(&arguments.volume, range.offset, range.length);
    told("evicted", &[(arguments.volume.as_str(), result)], output)
}

fn told(done: &str, results: &[(&str, Result<(), AskError>)], output: Output) -> Exit {
    if output == Output::Json {
        let results = results.iter().map(|(volume, result)| match result {
            Ok(()) => json!({ "volume": volume, "done": true }),
            Err(error) => json!({ "volume": volume, "done": false, "error": error.message }),
        });
        print_json(&results.collect::<Vec<_>>());
    }
    for (volume, result) in results {
        match result {
            Ok(()) if output == Output::Table => print(&format!("{volume}: {done}\n")),
            Ok(()) => {}
            Err(error) => complain(&error.message),
        }
    }
    sum(results.iter().map(|(_, result)| result.as_ref().map(drop).map_err(|error| error.exit)))
}

/// All well: ok. All failed: as the first did. Else: partial.
fn sum(results: impl Iterator<Item = Result<(), Exit>> + Clone) -> Exit {
    let mut failures = results.clone().filter_map(Result::err);
    match (failures.next(), results.into_iter().any(|result| result.is_ok())) {
        (None, _) => Exit::Ok,
        (Some(_), true) => Exit::Partial,
        (Some(exit), false) => exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_several_is_partial() {
        let of = |results: &[Result<(), Exit>]| sum(results.iter().copied());
        assert_eq!(of(&[Ok(()), Ok(())]), Exit::Ok);
        assert_eq!(of(&[Ok(()), Err(Exit::NotFound)]), Exit::Partial);
        assert_eq!(of(&[Err(Exit::NotFound), Err(Exit::Temporary)]), Exit::NotFound);
    }
}
