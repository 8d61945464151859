//! Short answers.

use std::time::Duration;

use h3::error::Code;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tokio::time::timeout;
use tracing::debug;

use crate::connection::Stream;

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    status: StatusCode,
    content_type: &'static str,
    body: String,
    allow: Option<&'static str>,
    retry_after: Option<Duration>,
}

impl Reply {
    /// A text for people.
    #[must_use]
    pub fn text(status: StatusCode, body: String) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Self { status, content_type, body, allow: None, retry_after: None }
    }

    /// A JSON object for programs.
    #[must_use]
    pub fn json(status: StatusCode, body: String) -> Self {
        Self { content_type: "application/json", ..Self::text(status, body) }
    }

    /// A refusal for `reason`. If only the method is wrong, `allow` lists the right ones. A client
    /// may try again after `patience` if the reason passes.
    #[must_use]
    pub fn refusal(
        status: StatusCode,
        reason: &str,
        allow: &'static str,
        patience: Duration,
    ) -> Self {
        let passing = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::INSUFFICIENT_STORAGE
        );
        Self {
            allow: (status == StatusCode::METHOD_NOT_ALLOWED).then_some(allow),
            retry_after: passing.then_some(patience),
            ..Self::text(status, format!("{reason}\n"))
        }
    }

    /// Answers a request, whatever is left of its body. The client must read the answer within
    /// `patience`.
    pub async fn send(self, stream: &mut Stream, patience: Duration) {
        let answered = timeout(patience, self.write(stream)).await;
        // The server does not need the rest of the body, which is no error (RFC 9114, section 4.1).
        stream.stop_sending(Code::H3_NO_ERROR);
        match answered {
            Ok(Ok(())) => {}
            // A client may leave without waiting for its answer.
            Ok(Err(error)) => debug!(%error, "the client did not read the answer"),
            Err(_) => {
                debug!("the client did not read the answer in time");
                stream.stop_stream(Code::H3_REQUEST_CANCELLED);
            }
        }
    }

    async fn write(self, stream: &mut Stream) -> Result<(), h3::error::StreamError> {
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(CONTENT_LENGTH, self.body.len().into());
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(patience) = self.retry_after {
            headers.insert(RETRY_AFTER, patience.as_secs().into());
        }
        stream.send_response(response).await?;
        stream.send_data(self.body.into()).await?;
        stream.finish().await
    }
}
