use super::*;
use forebay_core::VolumeId;
use std::os::unix::fs::FileExt;

const BYTES: u64 = 8 << 20;

struct Place {
    directory: tempfile::TempDir,
    path: PathBuf,
    nowhere: PathBuf,
    volumes: Vec<VolumeFacts>,
}

impl Place {
    fn new() -> Self {
        let facts = VolumeFacts {
            name: "vol".to_owned(),
            backend: "/backing".to_owned(),
            identity: 5,
            bytes: 1 << 30,
            mtime_ns: 0,
            log_bytes: 0,
        };
        let directory = tempfile::tempdir().unwrap();
        let (path, nowhere) = (directory.path().join("cache"), directory.path().join("nowhere"));
        Self { directory, path, nowhere, volumes: vec![facts] }
    }

    fn attach_with<'a>(&'a self, change: impl FnOnce(&mut AttachOptions<'a>)) -> Result<Attached, AttachError> {
        let mut options = AttachOptions {
            path: &self.path,
            bytes: Some(BYTES),
            sparse: true,
            page_bytes: 65536,
            volumes: &self.volumes,
            state_directory: self.directory.path(),
            name: "main",
            cold: false,
            force_format: false,
            intent_map: true,
            identity: None,
        };
        change(&mut options);
        attach(&options)
    }

    fn attach(&self) -> Result<Attached, AttachError> {
        self.attach_with(|_| {})
    }
}

#[test]
fn a_file_is_made_formatted_and_found_again() {
    let place = Place::new();
    let first = place.attach().unwrap();
    assert_eq!(first.notices, [Notice::Formatted]);
    assert_eq!(std::fs::metadata(&place.path).unwrap().len(), BYTES);
    assert!(matches!(place.attach().unwrap_err(), AttachError::Disk(_)), "it is locked");
    drop(first);
    let second = place.attach().unwrap();
    assert!(second.recover, "{:?}", second.notices);
    assert_eq!(second.disk.space(VolumeId(0)), 1);
    drop(second);
    std::fs::remove_file(place.directory.path().join("main.generation")).unwrap();
    let third = place.attach().unwrap();
    assert_eq!((third.notices.last(), third.recover), (Some(&Notice::GenerationUnknown), false));
}

#[test]
fn the_space_of_a_file_is_reserved_unless_it_is_to_be_sparse() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    drop(place.attach().unwrap());
    assert!(std::fs::metadata(&place.path).unwrap().blocks() * 512 < BYTES / 2);
    drop(place.attach_with(|options| options.sparse = false).unwrap());
    assert!(std::fs::metadata(&place.path).unwrap().blocks() * 512 >= BYTES);
}

#[test]
fn somebodys_file_is_left_alone_however_short_it_is() {
    for content in ["a letter", &"long".repeat(100_000)] {
        let place = Place::new();
        std::fs::write(&place.path, content).unwrap();
        for bytes in [Some(BYTES), None] {
            let error = place.attach_with(|options| options.bytes = bytes).unwrap_err();
            assert!(matches!(error, AttachError::Refused { .. }), "{error}");
            assert_eq!(std::fs::read(&place.path).unwrap(), content.as_bytes());
        }
        drop(place.attach_with(|options| options.force_format = true).unwrap());
        assert!(place.attach().unwrap().recover);
    }
}

#[test]
fn errors_name_the_device_the_cause_and_the_next_step() {
    let place = Place::new();
    let path = place.path.display().to_string();
    let small = place.attach_with(|options| options.bytes = Some(1 << 20)).unwrap_err().to_string();
    assert!(small.contains(&path) && small.contains("needs at least"), "{small}");
    let state = place.attach_with(|options| options.state_directory = &place.nowhere).unwrap_err().to_string();
    assert!(state.contains("nowhere/main.generation") && state.contains("writable"), "{state}");
}

#[test]
fn damage_to_one_superblock_is_survived_and_mended() {
    let place = Place::new();
    drop(place.attach().unwrap());
    for copy in [0, 4096] {
        let file = std::fs::OpenOptions::new().write(true).open(&place.path).unwrap();
        file.write_all_at(&[0xff; 64], copy + 512).unwrap();
        drop(file);
        assert!(place.attach().unwrap().recover, "copy at {copy}");
    }
}
