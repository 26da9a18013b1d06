//! Records the address and the authorities of a server, for later commands.

use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// The last address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its URL.
    pub server: String,
    /// The certificate authorities of its certificate, as PEM.
    pub authority: String,
}

const FILE: &str = "endpoint.json";

impl Endpoint {
    /// Reads the record in this data directory; `None` if the server never listened.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn read(directory: &Path) -> anyhow::Result<Option<Self>> {
        let path = directory.join(FILE);
        let Some(bytes) = gantry_serve::files::read_private(&path)? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some)
            .with_context(|| format!("cannot read {}: start the server again", path.display()))
    }

    /// Writes the record.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        Ok(gantry_serve::files::write_private(&directory.join(FILE), text.as_bytes())?)
    }
}
