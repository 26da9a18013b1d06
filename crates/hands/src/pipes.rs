//! Requests and replies on two pipes.

use std::io::{self, Read, Write};

use gantry_provision::{
    FRAME_VERSION, FrameError, MARKER_BYTES, Machine, Reply, Request, decode, encode,
    header_length, serve,
};

/// Why the conversation ended.
#[derive(Debug, thiserror::Error)]
pub enum HandsError {
    /// A pipe broke.
    #[error("could not speak to the controller")]
    Pipe(#[from] io::Error),
    /// What came is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The marker is too long or too short.
    #[error("a marker has {MARKER_BYTES} bytes, and {0} were given")]
    Marker(usize),
}

/// Writes the marker and a greeting, and carries out requests until the input ends.
///
/// # Errors
/// A pipe breaks, or what comes is no frame.
pub fn run(
    machine: &mut impl Machine,
    marker: &[u8],
    mut input: impl Read,
    mut output: impl Write,
) -> Result<(), HandsError> {
    if marker.len() != MARKER_BYTES {
        return Err(HandsError::Marker(marker.len()));
    }
    output.write_all(marker)?;
    write(&mut output, &Reply::Hello { version: FRAME_VERSION })?;
    loop {
        let mut length = [0; 4];
        match input.read(&mut length[..1]) {
            Ok(0) => return Ok(()),
            Ok(_) => input.read_exact(&mut length[1..])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        let mut header = vec![0; header_length(length)?];
        input.read_exact(&mut header)?;
        let (request, size) = decode::<Request>(&header)?;
        let mut body = Vec::new();
        let read = (&mut input).take(size).read_to_end(&mut body)?;
        if read as u64 != size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        write(&mut output, &serve(machine, request, &body))?;
    }
}

fn write(output: &mut impl Write, reply: &Reply) -> Result<(), HandsError> {
    output.write_all(&encode(reply, 0)?)?;
    output.flush()?;
    Ok(())
}
