//! Images in files of the command line, and the result that Kubernetes keeps.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use gantry_kernel_modules::effects::SharedBlobs;
use gantry_oci::layout::{Archive, Layout, save_image, write_archive};
use gantry_oci::{BlobSource, Descriptor, Document, blob};
use serde_json::{Value, json};

use super::{ExitReason, Failure};

/// The largest result that Kubernetes keeps of a container.
const MAX_TERMINATION_MESSAGE: usize = 4096;

/// Opens the only image of an archive.
pub(super) fn open_archive(path: &Path) -> Result<(Document, SharedBlobs), Failure> {
    let open = || {
        let archive = Archive::open(File::open(path)?)?;
        let document = blob::read_document(&archive, archive.image(None)?)?;
        let blobs: SharedBlobs = Arc::new(archive);
        anyhow::Ok((document, blobs))
    };
    let named = || format!("could not read the image in {}", path.display());
    open().with_context(named).map_err(|it| ExitReason::Pull.because(it))
}

/// Writes an image to a layout and to an archive, where they are wanted.
pub(super) fn save(
    blobs: &dyn BlobSource,
    root: &Descriptor,
    layout: Option<&Path>,
    archive: Option<&Path>,
    name: Option<&str>,
) -> Result<(), Failure> {
    let failed = |error: anyhow::Error| ExitReason::Repack.because(error);
    if let Some(path) = layout {
        let saved =
            Layout::create(path).and_then(|mut layout| save_image(blobs, &mut layout, root, name));
        saved.with_context(|| format!("could not write {}", path.display())).map_err(failed)?;
    }
    if let Some(path) = archive {
        let named = || format!("could not write {}", path.display());
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| Path::new(".")))
            .with_context(named)
            .map_err(failed)?;
        write_archive(blobs, root, name, &mut file).with_context(named).map_err(failed)?;
        file.persist(path).with_context(named).map_err(failed)?;
    }
    Ok(())
}

/// Writes a result to where Kubernetes reads it, if a kubelet made that file: a command on a laptop
/// leaves nothing in /dev.
pub(super) fn write_termination_message(log: &Path, result: &Value) -> anyhow::Result<()> {
    if !log.exists() {
        return Ok(());
    }
    std::fs::write(log, termination_message(result))
        .with_context(|| format!("could not write {}", log.display()))
}

/// Returns the result in at most as many bytes as Kubernetes keeps: without the last files if it
/// would have more, and with the number of those.
fn termination_message(result: &Value) -> String {
    let text = result.to_string();
    if text.len() <= MAX_TERMINATION_MESSAGE {
        return text;
    }
    let mut shorter = result.clone();
    let files = result["files"].as_array().cloned().unwrap_or_default();
    for kept in (0..files.len()).rev() {
        shorter["files"] = Value::from(&files[..kept]);
        shorter["moreFiles"] = json!(files.len() - kept);
        let text = shorter.to_string();
        if text.len() <= MAX_TERMINATION_MESSAGE {
            return text;
        }
    }
    json!({"image": result["image"]}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_fit_into_what_kubernetes_keeps() {
        let file = json!({"path": format!("/opt/{}.ko", "m".repeat(100)), "result": "signed"});
        for count in [0, 1, 20, 1000] {
            let files = vec![file.clone(); count];
            let text = termination_message(&json!({"image": "a@sha256:b", "files": files}));
            assert!(text.len() <= MAX_TERMINATION_MESSAGE, "{count} files: {}", text.len());
            let read: Value = serde_json::from_str(&text).unwrap();
            let shown = read["files"].as_array().unwrap().len();
            let more = read["moreFiles"].as_u64().unwrap_or(0);
            assert_eq!(shown as u64 + more, count as u64, "no file is dropped silently");
            assert_eq!(read["image"], "a@sha256:b");
        }
    }
}
