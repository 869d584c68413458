//! The cache disk's format.
