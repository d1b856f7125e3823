//! Asks an HTTP endpoint whether it is well, for images that have no curl.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The status line is at the very start of an answer.
const STATUS_LINE: u64 = 64;

/// Why an endpoint isn't well.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It is no URL that can be asked.
    #[error("`{0}` is no URL such as http://lynx-operator.lynx-system:8080/readyz")]
    Url(String),
    /// Nobody answers.
    #[error("nobody answers")]
    Unreachable(#[from] std::io::Error),
    /// Nobody answers in time.
    #[error("no answer within 5 s")]
    Slow,
    /// It says that it isn't well.
    #[error("the answer is `{0}`")]
    Unwell(String),
}

/// Gets `url`; fine where the answer's code is 2xx.
///
/// # Errors
/// Where it isn't.
pub async fn probe(url: &str) -> Result<(), ProbeError> {
    let wrong = || ProbeError::Url(url.to_owned());
    let uri: http::Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().ok_or_else(wrong)?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong());
    }
    let address = format!(
        "{}:{}",
        authority.host(),
        authority.port_u16().unwrap_or(80)
    );
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    let asked = tokio::time::timeout(PATIENCE, ask(&address, &request));
    let status = asked.await.map_err(|_| ProbeError::Slow)??;
    let code = status.split(' ').nth(1).unwrap_or_default();
    if code.len() == 3 && code.starts_with('2') {
        Ok(())
    } else {
        Err(ProbeError::Unwell(status))
    }
}

/// The answer's status line.
async fn ask(address: &str, request: &str) -> Result<String, std::io::Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(STATUS_LINE).read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// What a server that answers `answer` is found to be.
    async fn probed(answer: &'static str) -> Result<(), ProbeError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/readyz", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let more = stream.read_buf(&mut request).await.unwrap();
                assert!(more > 0, "the request ended early");
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        tokio::join!(probe(&url), serve).0
    }

    #[tokio::test]
    async fn only_a_2xx_is_fine() {
        assert!(probed("HTTP/1.1 200 OK\r\n\r\nready").await.is_ok());
        for answer in [
            "HTTP/1.1 503 Service Unavailable\r\n\r\n",
            "",
            "hello 2 you",
        ] {
            assert!(matches!(probed(answer).await, Err(ProbeError::Unwell(_))));
        }
    }

    #[tokio::test]
    async fn what_is_no_url_is_named() {
        for url in ["", "readyz", "https://a/", "/x"] {
            assert!(matches!(probe(url).await, Err(ProbeError::Url(_))), "{url}");
        }
    }
}
