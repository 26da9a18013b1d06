//! The embedded registry as a process of its own, which can be killed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bytes::Bytes;
use gantry_oci::{Digest, MediaType};
use gantry_process::clock::Clock;
use gantry_testkit::http::{Client, Credentials, Protocol, Request, Response, SendError, Target};
use http::header::{CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderValue, Method};

use crate::embedded::serve_directory;

/// The variable with the directory of the registry that this program serves.
const DIRECTORY: &str = "GANTRY_TEST_REGISTRY_DIRECTORY";
/// Before the address and the process id in the output of the process.
const ADDRESS: &str = "registry-address=";

/// Serves until its input ends, or until it is killed, where another test starts this program as a
/// process of its own; else there is nothing to serve.
#[tokio::test(flavor = "multi_thread")]
async fn serve_in_this_process() {
    #[expect(clippy::disallowed_methods, reason = "a test program takes no arguments of its own")]
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let (address, _tasks) = serve_directory(Path::new(&directory)).await;
    let line = format!("{ADDRESS}{address}/{}\n", std::process::id());
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    std::io::stdout().flush().unwrap();
    let wait = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
}

/// A registry in a process of its own. It ends with this value.
pub(crate) struct RegistryProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    _input: ChildStdin,
    /// The process that serves, which may be a child of the one that was started.
    pub(crate) pid: i32,
    client: Client,
}

impl RegistryProcess {
    /// Starts a registry on a directory.
    pub(crate) fn start(directory: &Path) -> Self {
        let program = std::env::current_exe().unwrap();
        Self::start_in(Command::new(program), directory)
    }

    /// Starts a registry with a command that runs the program of this test.
    pub(crate) fn start_in(mut command: Command, directory: &Path) -> Self {
        let test = "registry_process::serve_in_this_process";
        let mut child = command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (client, pid) = wait_for_address(&mut output);
        Self { child, output, _input: input, pid, client }
    }

    /// Waits for the next process that the command starts, after this one was killed.
    pub(crate) fn wait_for_restart(&mut self) {
        (self.client, self.pid) = wait_for_address(&mut self.output);
    }

    /// Ends the process that serves without any notice.
    pub(crate) fn kill(&self) {
        let pid = rustix::process::Pid::from_raw(self.pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    pub(crate) fn client(&self) -> RawClient {
        RawClient(self.client.clone())
    }
}

impl Drop for RegistryProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for_address(output: &mut BufReader<ChildStdout>) -> (Client, i32) {
    let mut text = String::new();
    loop {
        let mut line = String::new();
        let count = output.read_line(&mut line).unwrap();
        assert!(count > 0, "the registry did not start: {text}");
        if let Some((_, found)) = line.split_once(ADDRESS) {
            let (address, pid) = found.trim().split_once('/').unwrap();
            let credentials = Credentials::Token("right".to_owned());
            let base = format!("http://{address}");
            let target = Target { base, authority: String::new(), credentials };
            let client = Client::new(&target, Protocol::Http1, Clock::system()).unwrap();
            return (client, pid.parse().unwrap());
        }
        text += &line;
    }
}

/// Sends single requests, without any retry. An error means that there was no response.
#[derive(Clone, Debug)]
pub(crate) struct RawClient(Client);

impl RawClient {
    pub(crate) async fn send(&self, request: Request) -> Result<Response, SendError> {
        self.0.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Response, SendError> {
        self.send(Request::get(path)).await
    }

    /// Uploads a blob with the request that starts the upload.
    pub(crate) async fn push_at_once(
        &self,
        repository: &str,
        content: &Bytes,
    ) -> Result<Response, SendError> {
        let digest = Digest::sha256(content);
        let path = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
        self.send(Request::new(Method::POST, path).body(content.clone())).await
    }

    /// Starts an upload and returns its location.
    pub(crate) async fn start_upload(&self, repository: &str) -> Result<String, SendError> {
        let path = format!("/v2/{repository}/blobs/uploads/");
        let response = self.send(Request::new(Method::POST, path)).await?;
        assert_eq!(response.status, 202, "{}", response.text());
        Ok(response.headers["location"].to_str().unwrap().to_owned())
    }

    /// Sends one chunk.
    pub(crate) async fn send_chunk(
        &self,
        location: &str,
        first: usize,
        chunk: Bytes,
    ) -> Result<Response, SendError> {
        let range = format!("{first}-{}", first + chunk.len() - 1);
        let request = Request::new(Method::PATCH, location).body(chunk);
        self.send(request.header(CONTENT_RANGE, HeaderValue::from_str(&range).unwrap())).await
    }

    /// Finishes an upload.
    pub(crate) async fn finish_upload(
        &self,
        location: &str,
        content: &[u8],
        rest: Bytes,
    ) -> Result<Response, SendError> {
        let path = format!("{location}?digest={}", Digest::sha256(content));
        self.send(Request::new(Method::PUT, path).body(rest)).await
    }

    /// Stores a manifest under a tag or a digest.
    pub(crate) async fn put_manifest(
        &self,
        repository: &str,
        name: &str,
        bytes: &Bytes,
    ) -> Result<Response, SendError> {
        let path = format!("/v2/{repository}/manifests/{name}");
        let kind = HeaderValue::from_static("application/vnd.oci.image.manifest.v1+json");
        assert_eq!(kind, MediaType::OciManifest.as_str());
        let request = Request::new(Method::PUT, path).body(bytes.clone());
        self.send(request.header(CONTENT_TYPE, kind)).await
    }
}
