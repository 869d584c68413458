//! A directory of the demo's own, gone when it ends.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory.
#[derive(Debug)]
pub(super) struct OwnDirectory(PathBuf);

impl OwnDirectory {
    /// Makes one that nobody else may enter.
    pub(super) fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("forebay-demo-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            crate::verb::complain(&format!("{}: cannot be removed: {error}; remove it by hand", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_all_it_holds() {
        let directory = OwnDirectory::new().expect("a directory");
        let path = directory.path().to_owned();
        std::fs::write(path.join("file"), "x").expect("a file");
        assert!(OwnDirectory::new().is_err(), "it is nobody else's");
        drop(directory);
        assert!(!path.exists());
    }
}
