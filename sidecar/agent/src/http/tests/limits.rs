//! What clients may hold, and for how long: over real connections.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(600);

fn limits() -> Limits {
    Limits {
        connections: 1,
        idle: LONG,
        write: LONG,
    }
}

async fn listen(server: &Server, limits: Limits) -> (SocketAddr, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routers = [server.router.clone(), server.crowded.clone()];
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, routers, limits, stop.clone()));
    (address, stop)
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// Everything until the connection's end.
async fn rest(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = connect(address).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(stream).await
}

async fn post(stream: &mut TcpStream, path: &str, body: &str) {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_asks_nothing_is_closed() {
    let server = server();
    let limits = Limits {
        idle: SHORT,
        ..limits()
    };
    let (address, _stop) = listen(&server, limits).await;
    assert_eq!(rest(connect(address).await).await, "");
    let mut slow = connect(address).await;
    slow.write_all(b"GET /livez HTTP/1.1\r\nhost:")
        .await
        .unwrap();
    let answer = rest(slow).await;
    assert!(!answer.contains("200"), "{answer}");
    assert!(get(address, "/livez").await.contains(" 200 "));
}

#[tokio::test]
async fn where_clients_have_all_connections_probes_are_answered_and_others_told_to_come_back() {
    let server = server();
    let (address, _stop) = listen(&server, limits()).await;
    let mut client = connect(address).await;
    client
        .write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    // Once it is answered, the connection is open and has its place.
    client.read_exact(&mut [0; 15]).await.unwrap();
    for probe in ["/livez", "/readyz", "/startupz", "/metrics"] {
        let answer = get(address, probe).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{probe}: {answer}");
    }
    let answer = get(address, "/v1/models").await.to_lowercase();
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    assert!(answer.contains("http.maxconnections"), "{answer}");
    // Beyond probes' places nobody is served, and says so at once.
    let mut idle = Vec::new();
    for _ in 0..16 {
        let mut stream = connect(address).await;
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        stream.read_exact(&mut [0; 15]).await.unwrap();
        idle.push(stream);
    }
    let answer = rest(connect(address).await).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    drop(client);
    drop(idle);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_and_its_request_aborted() {
    let mut server = server();
    let limits = Limits {
        write: SHORT,
        ..limits()
    };
    let (address, _stop) = listen(&server, limits).await;
    let mut client = connect(address).await;
    let body = hello_with(&json!({"stream": true})).to_string();
    post(&mut client, CHAT, &body).await;
    let Some(Command::Generate(_, events)) = server.inbox.recv().await else {
        panic!("it was not handed in")
    };
    events.send(accepted(1)).unwrap();
    // More than the sockets' buffers hold.
    let text = "a".repeat(1 << 20);
    for index in 0..64 {
        if events.send(token(index, &text)).is_err() {
            break;
        }
    }
    events.closed().await;
    drop(client);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_with_408_and_the_connection_closed() {
    let server = with(|settings| settings.body_timeout = SHORT);
    let (address, _stop) = listen(&server, limits()).await;
    let mut client = connect(address).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{{");
    client.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(client).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("\"error\""), "{answer}");
}

#[tokio::test]
async fn bodies_beyond_their_memory_get_429_and_a_time_to_come_back() {
    let mut server = with(|settings| {
        settings.body_memory = Bytes::from_kib(64);
        settings.queue = 100;
    });
    let long = json!({"model": "tiny", "prompt": "a".repeat(40_000)}).to_string();
    let asking = server.router.call(request("POST", COMPLETIONS, &long));
    let asking = tokio::spawn(asking);
    let Some(Command::Generate(_, events)) = server.inbox.recv().await else {
        panic!("it was not handed in")
    };
    let second = server.router.call(request("POST", COMPLETIONS, &long));
    let second = second.await.unwrap();
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(second.headers()["retry-after"], "1");
    let error: Value = serde_json::from_str(&text(second).await).unwrap();
    assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    assert!(error.to_string().contains("http.bodyMemory"), "{error}");
    // Room is there again once the answer is gone.
    for generated in hi() {
        events.send(generated).unwrap();
    }
    drop(text(asking.await.unwrap().unwrap()).await);
    let third = tokio::spawn(server.router.call(request("POST", COMPLETIONS, &long)));
    let taken = server.inbox.recv().await;
    assert!(matches!(taken, Some(Command::Generate(..))));
    third.abort();
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = server();
    let (address, _stop) = listen(&server, limits()).await;
    let mut client = connect(address).await;
    let fields: String = (0..100).map(|n| format!("x-{n}: y\r\n")).collect();
    let head = format!("GET /livez HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    assert!(rest(client).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn a_server_that_is_stopped_ends_what_it_is_about_and_then_its_connections() {
    let mut server = server();
    let (address, stop) = listen(&server, limits()).await;
    let mut client = connect(address).await;
    post(&mut client, CHAT, &hello().to_string()).await;
    let Some(Command::Generate(_, events)) = server.inbox.recv().await else {
        panic!("it was not handed in")
    };
    stop.cancel();
    for generated in hi() {
        events.send(generated).unwrap();
    }
    let answer = rest(client).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("Hi there"), "{answer}");
}
