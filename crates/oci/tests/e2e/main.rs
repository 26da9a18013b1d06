//! Lets other implementations read what this crate writes, and reads what they write.
//!
//! Debian packages `umoci`, `skopeo`, `tar` and `zstd`; a test whose tools are missing prints
//! `skipped:` and which.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod memory;
mod merged_tree;
mod tar_formats;
mod tools;
mod written_images;
