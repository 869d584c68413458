//! Profiles as files: what `forebay profile` saves, and what a volume is given at its start.
//!
//! A profile belongs to a pair of devices ([`devices`]). One that was measured on others is refused, and the cache serves
//! without it: a link that came up slower after a restart must not keep a volume from being served. Another serial
//! number is another device of the same kind, and only wants a word.

pub(crate) mod devices;
mod file;

pub(crate) use file::{ProfileFile, QuickError};

use forebay_admin::{Devices, ProfileNote};
use forebay_policy::split::profile::{Fit, Identity, Profile};
use std::path::Path;

/// What a volume was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Empty if nothing can be used.
    pub(crate) profile: Profile,
    /// What to tell of it; `None` if there was nothing to give.
    pub(crate) note: Option<ProfileNote>,
}

impl Given {
    /// What the file gives these devices. A file that cannot be used gives an empty profile, and says why.
    pub(crate) fn from(file: &Path, devices: &Devices) -> Self {
        let name = file.display().to_string();
        let read = ProfileFile::read(file).and_then(|read| {
            let note = read.fits(devices).map_err(|why| format!("{name}: {why}"))?;
            Ok((read.profile()?, note))
        });
        match read {
            Ok((profile, note)) => {
                let points = profile.rows().count() as u64;
                Self { profile, note: Some(ProfileNote { file: name, points, note }) }
            }
            Err(note) => Self { profile: Profile::new(), note: Some(ProfileNote { file: name, points: 0, note }) },
        }
    }

    /// Why it cannot be used.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.note.as_ref().filter(|note| note.points == 0).map(|note| note.note.as_str())
    }
}

fn identity(devices: &Devices) -> Identity {
    Identity {
        disk_model: devices.disk_model.clone(),
        disk_serial: devices.disk_serial.clone(),
        backend_kind: devices.backend_kind.clone(),
        link_bits_per_second: devices.link_bits_per_second,
    }
}

impl ProfileFile {
    /// A word of warning, or none, if it may be used for these devices.
    ///
    /// # Errors
    /// Why not: what differs, and what to do.
    pub(crate) fn fits(&self, present: &Devices) -> Result<String, String> {
        match identity(&self.devices).fits(&identity(present)) {
            Fit::Same => Ok(String::new()),
            Fit::OtherSerial => Ok(format!(
                "measured on another disk of the model \"{}\" (serial number \"{}\", here \"{}\")",
                present.disk_model, self.devices.disk_serial, present.disk_serial
            )),
            Fit::Other => Err(format!(
                "measured on other devices: {}; measure these with `forebay profile`",
                differences(&self.devices, present)
            )),
        }
    }
}

fn differences(then: &Devices, now: &Devices) -> String {
    let link = |devices: &Devices| devices::link_told(devices.link_bits_per_second);
    let rows = [
        ("cache disk", then.disk_model.clone(), now.disk_model.clone()),
        ("back end", then.backend_kind.clone(), now.backend_kind.clone()),
        ("link to the back end", link(then), link(now)),
    ];
    let differ = rows.iter().filter(|(_, then, now)| then != now);
    let told: Vec<_> = differ.map(|(what, then, now)| format!("the {what} was \"{then}\" and is \"{now}\"")).collect();
    told.join(", ")
}

#[cfg(test)]
mod tests;
