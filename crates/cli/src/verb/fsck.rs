//! `forebay fsck`: what is lost of volumes in write-back, and accepting it.
//!
//! A loss is never silent: what was in a write-back log only, and is in it no more, is listed, and reading it fails. Whoever
//! accepts that reads what the back end has instead. A running server is asked; where none runs, the region maps beside the
//! configuration are read, which know a loss by MiB.

use super::{complain, print, print_json};
use crate::admin_client::AdminClient;
use crate::arguments::{Fsck, Output};
use crate::config::unit::size_rounded;
use crate::config::{self, Environment, Settings, VolumeSettings};
use crate::exit::Exit;
use crate::serve::lost_range;
use crate::table;
use forebay_admin::{LostRange, Snapshot};
use forebay_core::log::logged::{LostExtent, REGION_SECTORS};
use forebay_engine::state::{RegionMapError, RegionMapFile};
use forebay_uring::{DiskFile, OpenOptions};
use serde::Serialize;

/// What is lost of a volume.
#[derive(Debug, Serialize)]
struct Loss {
    volume: String,
    lost_bytes: u64,
    extents: Vec<LostRange>,
    accepted: bool,
}

pub(crate) fn fsck(arguments: &Fsck, output: Output, environment: &Environment) -> Exit {
    let client = AdminClient::new(arguments.running.admin);
    let losses = match client.get::<Snapshot>("/api/v1/stats") {
        Ok(snapshot) => running(&client, &snapshot, arguments),
        Err(_) => at_rest(arguments, environment),
    };
    let losses = match losses {
        Ok(losses) => losses,
        Err(exit) => return exit,
    };
    let names: Vec<&str> = losses.iter().map(|loss| loss.volume.as_str()).collect();
    if let Some(unknown) = arguments.volumes.iter().find(|name| !names.contains(&name.as_str())) {
        complain(&format!("there is no volume \"{unknown}\"; `forebay status` lists them"));
        return Exit::NotFound;
    }
    match output {
        Output::Json => print_json(&losses),
        Output::Table => print(&told(&losses)),
    }
    let is_well = losses.iter().all(|loss| loss.lost_bytes == 0 || loss.accepted);
    if is_well { Exit::Ok } else { Exit::Partial }
}

fn is_asked(arguments: &Fsck, volume: &str) -> bool {
    arguments.volumes.is_empty() || arguments.volumes.iter().any(|name| name == volume)
}

fn running(client: &AdminClient, snapshot: &Snapshot, arguments: &Fsck) -> Result<Vec<Loss>, Exit> {
    let mut losses = Vec::new();
    for volume in snapshot.volumes.iter().filter(|volume| is_asked(arguments, &volume.name)) {
        let log = volume.log.clone().unwrap_or_default();
        let accepts = arguments.accept_loss && log.lost_bytes > 0;
        if accepts {
            client.accept_loss(&volume.name).map_err(|error| super::failed(&error))?;
        }
        let (volume, lost_bytes, extents) = (volume.name.clone(), log.lost_bytes, log.lost);
        losses.push(Loss { volume, lost_bytes, extents, accepted: accepts });
    }
    Ok(losses)
}

/// Nobody serves the volumes, or they are locked.
fn at_rest(arguments: &Fsck, environment: &Environment) -> Result<Vec<Loss>, Exit> {
    let settings =
        config::load(&arguments.config, environment, &Vec::new()).map(|(settings, _)| settings).map_err(|report| {
            complain(&format!("no server answers, and the configuration cannot be used:\n{report}"));
            Exit::Usage
        })?;
    let open = OpenOptions { write: true, direct: false, exclusive: true, create: true };
    let lock = DiskFile::open(&settings.cache.state_dir.join("lock"), open);
    let _lock = lock.map_err(|error| {
        complain(&format!("a server that does not answer has the state directory: {error}; ask it, or stop it"));
        Exit::Temporary
    })?;
    let asked = settings.volumes.iter().filter(|volume| is_asked(arguments, &volume.name));
    asked.map(|volume| of_map(&settings, volume, arguments.accept_loss)).collect()
}

/// What a region map says. A volume that has no log any more has lost what was in it.
fn of_map(settings: &Settings, volume: &VolumeSettings, accepts: bool) -> Result<Loss, Exit> {
    let directory = &settings.cache.state_dir;
    let gives_up_log = volume.log_bytes == 0;
    let failed = |error: RegionMapError| {
        complain(&error.to_string());
        Exit::Failure
    };
    let found = match RegionMapFile::found(directory, &volume.name) {
        Err(RegionMapError::Damaged { .. }) if accepts => None,
        found => found.map_err(failed)?,
    };
    let mut extents: Vec<LostRange> = Vec::new();
    if let Some(image) = &found {
        extents.extend(image.lost.iter().map(|extent| lost_range(&extent)));
        let regions = image.dirty.iter().filter(|_| gives_up_log);
        extents.extend(regions.map(|region| {
            let first = region * REGION_SECTORS;
            lost_range(&LostExtent { sectors: first..first + REGION_SECTORS, epoch: None })
        }));
    }
    if accepts {
        RegionMapFile::accept_loss(directory, &volume.name, gives_up_log).map_err(failed)?;
    }
    let lost_bytes = extents.iter().map(|extent| extent.length).sum();
    Ok(Loss { volume: volume.name.clone(), lost_bytes, extents, accepted: accepts })
}

fn told(losses: &[Loss]) -> String {
    let mut out = String::new();
    for loss in losses {
        let (volume, bytes) = (&loss.volume, size_rounded(loss.lost_bytes));
        out.push_str(&match (loss.lost_bytes, loss.accepted) {
            (0, _) => format!("{volume}: nothing is lost\n"),
            (_, true) => format!("{volume}: the loss of {bytes} is accepted; they read as what the back end has\n"),
            (_, false) => format!(
                "{volume}: {bytes} are lost: reading them fails until they are written. `forebay fsck --accept-loss {volume}` \
                 lets them read as what the back end has, which is older.\n"
            ),
        });
        if loss.extents.is_empty() {
            continue;
        }
        let row = |extent: &LostRange| {
            let epoch = extent.epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
            vec![extent.offset.to_string(), extent.length.to_string(), epoch]
        };
        let rows: Vec<_> = loss.extents.iter().map(row).collect();
        out.push_str(&table::render(&["OFFSET", "LENGTH", "EPOCH"], &rows));
    }
    out
}
