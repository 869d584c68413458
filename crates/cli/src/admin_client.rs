//! Does: asks a running server's admin endpoint.
//!
//! ureq without TLS: blocking, kept well, and nothing but HTTP/1.1 over loopback is needed. Rejected: hyper's client,
//! which would drag a runtime and forty lines of connection handling into every verb.

use crate::exit::Exit;
use forebay_admin::{ErrorBody, ExplainedObject, ForgottenObjects, FoundObjects, Measure, PathRate, ProfileNote};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Response;

/// The largest answer that is read: a volume's statistics are a few KiB.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longer than the endpoint itself waits for the cache.
const TIMEOUT: Duration = Duration::from_secs(130);
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Why nothing came of it: the message, and how the program should end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AskError {
    /// Thing, cause and next step.
    pub message: String,
    /// The exit code.
    pub exit: Exit,
}

/// A running server.
#[derive(Debug)]
pub struct AdminClient {
    address: SocketAddr,
    agent: Agent,
}

impl AdminClient {
    /// The server at `address`; nothing is sent yet.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self::within(address, TIMEOUT)
    }

    /// The server at `address`, which is silent if it does not answer within `timeout`.
    #[must_use]
    pub fn within(address: SocketAddr, timeout: Duration) -> Self {
        let agent = Agent::config_builder()
            .timeout_connect(Some(Duration::from_secs(2)))
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build()
            .new_agent();
        Self { address, agent }
    }

    /// `GET path`, as data.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AskError> {
        let text = self.answer(self.agent.get(self.url(path)).call())?;
        serde_json::from_str(&text).map_err(|cause| self.strange(&cause.to_string()))
    }

    /// `GET path`, as text.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn text(&self, path: &str) -> Result<String, AskError> {
        self.answer(self.agent.get(self.url(path)).call())
    }

    /// Flushes a volume.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn flush(&self, volume: &str) -> Result<(), AskError> {
        self.order(volume, "flush")
    }

    /// Evicts a range of a volume; to its end without a length.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn evict(&self, volume: &str, offset: u64, length: Option<u64>) -> Result<(), AskError> {
        let length = length.map(|length| format!("&length={length}")).unwrap_or_default();
        self.order(volume, &format!("evict?offset={offset}{length}"))
    }

    /// Splits a volume's hits by another policy.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn split(&self, volume: &str, policy: &str, disk_percent: Option<u64>) -> Result<(), AskError> {
        let policy = utf8_percent_encode(policy, IN_PATH);
        let share = disk_percent.map(|percent| format!("&disk_percent={percent}")).unwrap_or_default();
        self.order(volume, &format!("split?policy={policy}{share}"))
    }

    /// Switches a volume between `back` and `through`.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn mode(&self, volume: &str, mode: &str) -> Result<(), AskError> {
        self.order(volume, &format!("mode?mode={}", utf8_percent_encode(mode, IN_PATH)))
    }

    /// Accepts what is lost of a volume.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn accept_loss(&self, volume: &str) -> Result<(), AskError> {
        self.order(volume, "accept-loss")
    }

    /// Measures a path of a volume.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn measure(&self, volume: &str, measure: Measure) -> Result<PathRate, AskError> {
        let Measure { is_backend, block_bytes, in_flight, milliseconds } = measure;
        let path = if is_backend { "backend" } else { "disk" };
        let load = format!("block_bytes={block_bytes}&in_flight={in_flight}&milliseconds={milliseconds}");
        self.told(volume, &format!("measure?path={path}&{load}"))
    }

    /// Gives a volume's policies the profile in a file of the server's machine.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn profile(&self, volume: &str, file: &str) -> Result<ProfileNote, AskError> {
        self.told(volume, &format!("profile?file={}", utf8_percent_encode(file, IN_PATH)))
    }

    /// The profile of a volume's policies with what they observed, as it is saved.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn learnt<T: DeserializeOwned>(&self, volume: &str) -> Result<T, AskError> {
        self.told(volume, "learnt")
    }

    /// What the S3 gateway knows of objects, and where it is.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn find_objects(&self, uri: &str) -> Result<FoundObjects, AskError> {
        self.of_objects("stat", uri)
    }

    /// Forgets objects.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn forget_objects(&self, uri: &str) -> Result<ForgottenObjects, AskError> {
        self.of_objects("evict", uri)
    }

    /// What is known of an object, and why answers for it were not cached.
    ///
    /// # Errors
    /// When nobody answers, or with an error.
    pub fn explain_object(&self, uri: &str) -> Result<ExplainedObject, AskError> {
        self.of_objects("explain", uri)
    }

    fn of_objects<T: DeserializeOwned>(&self, verb: &str, uri: &str) -> Result<T, AskError> {
        let url = self.url(&format!("/api/v1/objects/{verb}?uri={}", utf8_percent_encode(uri, IN_PATH)));
        let text = self.answer(self.agent.post(url).send_empty())?;
        serde_json::from_str(&text).map_err(|cause| self.strange(&cause.to_string()))
    }

    fn order(&self, volume: &str, verb: &str) -> Result<(), AskError> {
        self.post(volume, verb).map(drop)
    }

    fn told<T: DeserializeOwned>(&self, volume: &str, verb: &str) -> Result<T, AskError> {
        let text = self.post(volume, verb)?;
        serde_json::from_str(&text).map_err(|cause| self.strange(&cause.to_string()))
    }

    fn post(&self, volume: &str, verb: &str) -> Result<String, AskError> {
        let volume = utf8_percent_encode(volume, IN_PATH);
        let url = self.url(&format!("/api/v1/volumes/{volume}/{verb}"));
        self.answer(self.agent.post(url).send_empty())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn answer(&self, answer: Result<Response<ureq::Body>, ureq::Error>) -> Result<String, AskError> {
        let mut answer = answer.map_err(|cause| self.silent(&cause))?;
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let body = body.map_err(|cause| self.silent(&cause))?;
        if answer.status().is_success() {
            return Ok(body);
        }
        let Ok(ErrorBody { error }) = serde_json::from_str(&body) else {
            return Err(self.strange(&format!("it answers {}", answer.status())));
        };
        Err(AskError { message: error.to_string(), exit: error.kind.into() })
    }

    fn silent(&self, cause: &ureq::Error) -> AskError {
        let message = format!(
            "no answer from {}: {cause}; is `forebay serve` running? (--admin or FOREBAY_ADMIN_LISTEN names another address)",
            self.address
        );
        AskError { message, exit: Exit::Temporary }
    }

    fn strange(&self, cause: &str) -> AskError {
        let message = format!(
            "{} does not answer like forebay's admin endpoint: {cause}; --admin names another address",
            self.address
        );
        AskError { message, exit: Exit::Failure }
    }
}
