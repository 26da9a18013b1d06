//! The end of an instance's log, as launchers of all releases give it.

use gantry_http_client::Bounds;
use http::header::{CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method};

use super::peer::{PeerClient, PeerRequest, PeerResponse, socket_address};
use super::responders::INSTANCE_TIMEOUT;
use crate::facts::Endpoint;
use crate::labels::INSTANCES_PATH;

/// How much of a log is reported.
const LOG_TAIL_BYTES: u64 = 4 << 10;
/// The largest response: launchers send a mebibyte if they ignore the range.
const MAX_RESPONSE_BYTES: usize = (1 << 20) + (64 << 10);

impl PeerClient {
    /// The last 4 KiB of an instance's log; empty if it has written nothing.
    ///
    /// # Errors
    /// The launcher does not give it.
    pub(super) async fn log_tail(
        &self,
        launcher: &Endpoint,
        config: &str,
        id: &str,
    ) -> Result<String, String> {
        let suffix = format!("bytes=-{LOG_TAIL_BYTES}");
        let response = self.log_range(launcher, config, id, &suffix).await?;
        match response.status {
            200 | 206 => return Ok(text(&response)),
            // It is empty.
            416 => return Ok(String::new()),
            // Launchers of older releases know no suffix: they are asked for the length first.
            400 => {}
            status => return Err(format!("HTTP status {status} for the log of {id}")),
        }
        let first = self.log_range(launcher, config, id, "bytes=0-0").await?;
        let Some(total) = total_length(&first) else {
            return match first.status {
                200 | 206 => Ok(text(&first)),
                416 => Ok(String::new()),
                status => Err(format!("HTTP status {status} for the log of {id}")),
            };
        };
        let from = total.saturating_sub(LOG_TAIL_BYTES);
        let response = self.log_range(launcher, config, id, &format!("bytes={from}-")).await?;
        match response.status {
            200 | 206 => Ok(text(&response)),
            416 => Ok(String::new()),
            status => Err(format!("HTTP status {status} for the log of {id}")),
        }
    }

    async fn log_range(
        &self,
        launcher: &Endpoint,
        config: &str,
        id: &str,
        range: &str,
    ) -> Result<PeerResponse, String> {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(range).map_err(|error| error.to_string())?;
        headers.insert(RANGE, value);
        self.send(PeerRequest {
            purpose: "get_instance_log",
            method: Method::GET,
            pod: &launcher.pod,
            address: socket_address(launcher)?,
            path: &format!("{INSTANCES_PATH}/{id}/log"),
            headers,
            body: None,
            bounds: Bounds { time: INSTANCE_TIMEOUT, bytes: MAX_RESPONSE_BYTES },
            has_token: true,
            config,
            requester: None,
        })
        .await
    }
}

/// The length of the whole, of `bytes A-B/TOTAL` or `bytes */TOTAL`.
fn total_length(response: &PeerResponse) -> Option<u64> {
    let range = response.headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range.rsplit_once('/')?.1.parse().ok()
}

/// The end of a body as text; what is cut off in the middle of a character is left out.
fn text(response: &PeerResponse) -> String {
    let most = usize::try_from(LOG_TAIL_BYTES).unwrap_or(usize::MAX);
    let from = response.body.len().saturating_sub(most);
    let end = &response.body[from..];
    let is_continuation = |it: &u8| (it & 0b1100_0000) == 0b1000_0000;
    let skipped = match from {
        0 => 0,
        _ => end.iter().take(3).take_while(|it| is_continuation(it)).count(),
    };
    String::from_utf8_lossy(&end[skipped..]).into_owned()
}
