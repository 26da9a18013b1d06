//! Where a server is reached and whom to believe there, noted for those who come later.

use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// Where a server was last reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its URL.
    pub server: String,
    /// The authorities that vouch for its certificate, as PEM.
    pub authority: String,
}

const FILE: &str = "endpoint.json";

impl Endpoint {
    /// What the server with this data directory has noted; nothing if it never listened.
    ///
    /// # Errors
    /// The note cannot be read.
    pub fn read(directory: &Path) -> anyhow::Result<Option<Self>> {
        let path = directory.join(FILE);
        let Some(bytes) = gantry_serve::files::read_private(&path)? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some)
            .with_context(|| format!("cannot read {}: start the server again", path.display()))
    }

    /// Notes it.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        Ok(gantry_serve::files::write_private(&directory.join(FILE), text.as_bytes())?)
    }
}
