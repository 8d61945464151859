//! The URL of the command line.

use anyhow::Context as _;
use url::{Host, Url};

/// The most characters of a URL. Few servers take longer ones, and QUIC sends the request at once.
const MAX_URL_LEN: usize = 8192;

/// The server and the path of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server.
    pub host: Host<String>,
    /// Its UDP port, unless an HTTPS record names another.
    pub port: u16,
    /// `host:port`, for the request.
    pub authority: String,
    /// The path of the request, percent-encoded, and the query if there is one.
    pub path: String,
}

impl Target {
    /// The server of `url`, and this path.
    ///
    /// # Errors
    /// The URL names no host.
    pub fn new(url: &Url, path: String) -> anyhow::Result<Self> {
        let host = url.host().context("the URL names no host")?.to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        Ok(Self { authority: format!("{host}:{port}"), host, port, path })
    }

    /// The whole URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}{}", self.authority, self.path)
    }
}

/// Reads a URL of a file.
///
/// # Errors
/// A sentence for the user: it is no URL, too long, or not of HTTP/3.
pub fn parse_url(text: &str) -> Result<Url, String> {
    if text.len() > MAX_URL_LEN {
        return Err(format!("it has {} characters, and {MAX_URL_LEN} are the most", text.len()));
    }
    let url =
        Url::parse(text).map_err(|e| format!("{e}; use the form https://HOST[:PORT]/NAME"))?;
    match url.scheme() {
        "https" => Ok(url),
        other => {
            Err(format!("HTTP/3 needs https, not {other}; use the form https://HOST[:PORT]/NAME"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_always_has_its_port() {
        let of = |url: &str| Target::new(&parse_url(url).unwrap(), "/x".to_owned()).unwrap().url();
        assert_eq!(of("https://example.org/"), "https://example.org:443/x");
        assert_eq!(of("https://[::1]:4433/"), "https://[::1]:4433/x");
    }

    #[test]
    fn a_long_url_is_refused() {
        let of_len = |len: usize| format!("https://h/{:1<1$}", "", len - "https://h/".len());
        assert!(parse_url(&of_len(MAX_URL_LEN)).is_ok());
        let said = parse_url(&of_len(MAX_URL_LEN + 1)).unwrap_err();
        assert!(said.contains("8193 characters"), "{said}");
    }

    #[test]
    fn only_https() {
        assert!(parse_url("http://h/").is_err());
        assert!(parse_url("h:4433").is_err());
    }
}
