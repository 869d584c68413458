//! Does: an S3 store over a directory, behind a link as slow as one likes; for demos and tests, no part of the product.
//!
//! Why: a store that needs nothing but cargo, in seconds. The S3 part is the crate `s3s-fs`, which is a program of its own here because it brings
//! 130 crates along that `forebay` shall not have.
//!
//! How: [`Store`] takes connections; each goes through the [`Link`], which all share, and ends in hyper and s3s. Nothing is asked of the kernel for that.
//!
//! Limits: one owner; nobody else has rights. No versions, no policies, no listing of versions. Not for data that matter.
#![forbid(unsafe_code)]

mod link;
mod store;

pub use link::{Link, LinkConfig};
pub use store::{Store, StoreConfig, StoreError};
