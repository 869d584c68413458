//! What a profile was measured on, and whether it still holds.
//!
//! A profile is a property of the devices: it serves a fleet of equal machines (NetCAS, section III-C), and is worse
//! than none on others. Model, kind and link speed decide; another serial number is another device of the same kind,
//! which only wants a word.

use alloc::string::String;

/// The pair of devices that a profile was measured on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cache disk's model, as it tells it.
    pub disk_model: String,
    /// Its serial number; empty if it has none.
    pub disk_serial: String,
    /// What kind of back end it is, for instance `nbd` or `file`.
    pub backend_kind: String,
    /// The speed of the link to the back end; 0 if it is local, or not known.
    pub link_bits_per_second: u64,
}

/// Whether a profile holds for a pair of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It was measured on this pair.
    Same,
    /// It was measured on an equal pair: use it, with a warning.
    OtherSerial,
    /// It was measured on something else: refuse it.
    Other,
}

impl Identity {
    /// Whether a profile of `self` holds for `present`.
    #[must_use]
    pub fn fits(&self, present: &Self) -> Fit {
        if *self == *present {
            Fit::Same
        } else if (Self { disk_serial: present.disk_serial.clone(), ..self.clone() }) == *present {
            Fit::OtherSerial
        } else {
            Fit::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_only_warns_and_all_else_refuses() {
        let here = Identity {
            disk_model: "S4510".into(),
            disk_serial: "1".into(),
            backend_kind: "nbd".into(),
            link_bits_per_second: 10_000_000_000,
        };
        assert_eq!(here.fits(&here.clone()), Fit::Same);
        assert_eq!(here.fits(&Identity { disk_serial: "2".into(), ..here.clone() }), Fit::OtherSerial);
        let others = [
            Identity { disk_model: "P5800X".into(), ..here.clone() },
            Identity { backend_kind: "file".into(), ..here.clone() },
            Identity { link_bits_per_second: 25_000_000_000, ..here.clone() },
            Identity { link_bits_per_second: 0, disk_serial: "2".into(), ..here.clone() },
        ];
        assert!(others.iter().all(|other| here.fits(other) == Fit::Other));
    }
}
