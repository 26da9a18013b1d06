//! A client of the API server in the same process.

use anyhow::bail;
use bytes::Bytes;
use gantry_apiserver::{Api, Caller};
use gantry_controller::transport;
use gantry_reconcile::names::fingerprint;
use gantry_reconcile::{ApiPath, Parameter};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::SOURCE_ANNOTATION;

/// A client of the server in the same process, for one caller.
#[derive(Clone, Debug)]
pub struct InProcessClient {
    pub(super) api: Api,
    pub(super) caller: Caller,
}

impl InProcessClient {
    /// Creates the client of the server itself, which may do everything.
    #[must_use]
    pub fn as_server(api: &Api) -> Self {
        Self { api: api.clone(), caller: Caller::server() }
    }

    /// Creates the client of another caller.
    #[must_use]
    pub fn as_caller(api: &Api, caller: Caller) -> Self {
        Self { api: api.clone(), caller }
    }

    /// Returns a kube client that sends requests as this caller.
    #[must_use]
    pub fn kube_client(&self) -> kube::Client {
        let Self { api, caller } = self.clone();
        transport::in_process(move |request: Request<Bytes>| {
            let (api, caller) = (api.clone(), caller.clone());
            async move { api.handle(request, Some(caller)).await }
        })
    }

    /// Sends a request and reads the whole response.
    ///
    /// # Errors
    /// The response is truncated or not JSON.
    pub async fn request(
        &self,
        method: Method,
        path: &ApiPath,
        kind: &'static str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = Request::builder().method(method).uri(path.as_str());
        let request = request
            .header(http::header::CONTENT_TYPE, kind)
            .header(http::header::USER_AGENT, "gantry-up")
            .body(body)?;
        let answer = self.api.handle(request, Some(self.caller.clone())).await;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the response is truncated: {error}"))?;
        Ok((status, serde_json::from_slice(&body.to_bytes())?))
    }

    /// Creates or replaces an object. Returns whether that changed anything: an object from the
    /// same source is left as users have changed it since.
    ///
    /// # Errors
    /// The server rejects the object.
    pub async fn install(&self, path: &ApiPath, object: &Value) -> anyhow::Result<bool> {
        let source = fingerprint(&[&object.to_string()]);
        let (status, found) = self.request(Method::GET, path, "application/json", None).await?;
        if status == StatusCode::OK
            && found["metadata"]["annotations"][SOURCE_ANNOTATION] == source.as_str()
        {
            return Ok(false);
        }
        let mut object = object.clone();
        object["metadata"]["annotations"][SOURCE_ANNOTATION] = json!(source);
        let (status, answer) = match status {
            StatusCode::NOT_FOUND => {
                let collection = path.collection_of_item().with(Parameter::FieldManager("gantry"));
                self.request(Method::POST, &collection, "application/json", Some(&object)).await?
            }
            // Replaced as a whole: nothing of the previous source may stay.
            _ => {
                object["metadata"]["resourceVersion"] =
                    found["metadata"]["resourceVersion"].clone();
                let path = path.clone().with(Parameter::FieldManager("gantry"));
                self.request(Method::PUT, &path, "application/json", Some(&object)).await?
            }
        };
        match status.is_success() {
            true => Ok(true),
            false => bail!("{}", answer["message"].as_str().unwrap_or("the server gave no reason")),
        }
    }
}
