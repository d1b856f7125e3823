//! What Kubernetes and Prometheus see, and the administrator.

use super::*;
use crate::requests::Refusal;

async fn get(server: &mut Server, path: &str) -> (StatusCode, String) {
    let response = server.call(request("GET", path, "")).await;
    (response.status(), text(response).await)
}

#[tokio::test]
async fn an_agent_is_ready_while_it_has_an_engine_and_does_not_drain() {
    let mut server = server();
    assert_eq!(get(&mut server, "/readyz").await.0, StatusCode::OK);
    server.status.send_modify(|status| {
        status.ready = false;
        status.attach_error = Some("no profile fits".to_owned());
    });
    let (status, why) = get(&mut server, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(why.contains("no profile fits"), "{why}");
    server.attachment.send_replace(Attachment::default());
    server.status.send_replace(Status::default());
    let (status, why) = get(&mut server, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(why.contains("no engine is attached yet"), "{why}");
    for path in ["/livez", "/startupz"] {
        assert_eq!(get(&mut server, path).await.0, StatusCode::OK, "{path}");
    }
    server.drain.begin(Duration::from_secs(1));
    assert!(get(&mut server, "/readyz").await.1.contains("draining"));
}

#[tokio::test(start_paused = true)]
async fn a_drain_answers_when_nothing_is_in_flight() {
    let mut server = server();
    let work = server.drain.enter();
    let mut router = server.router.clone();
    let call =
        tokio::spawn(async move { router.call(request("GET", "/drain?deadline=30s", "")).await });
    server.drain.begun().await;
    drop(work);
    let response = call.await.unwrap().unwrap();
    assert_eq!(
        text(response).await,
        json!({"drained": true, "in_flight": 0}).to_string()
    );
    let (status, _) = get(&mut server, "/drain?deadline=soon").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let response = server.call(request("DELETE", "/drain", "")).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_says_what_is_left() {
    let mut server = server();
    let _work = server.drain.enter();
    let (status, answer) = server.json(request("POST", "/drain", "")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer, json!({"drained": false, "in_flight": 1}));
}

#[tokio::test]
async fn a_prefill_agent_has_health_and_metrics_alone() {
    let mut server = with(|settings| {
        settings.role = Role::Prefill;
        settings.admin = false;
    });
    assert_eq!(get(&mut server, "/readyz").await.0, StatusCode::OK);
    let (status, metrics) = get(&mut server, "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(metrics.contains("lynx_engine_attached 1"), "{metrics}");
    for path in ["/v1/models", "/lynx/v1/prefix-cache/reset"] {
        assert_eq!(
            get(&mut server, path).await.0,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_prefix_cache_is_warmed_and_reset() {
    let mut server = server();
    let path = "/lynx/v1/prefix-cache/warm";
    let (status, _) = server.refused(path, r#"{"tokens": []}"#).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let mut router = server.router.clone();
    let warm = router.call(request("POST", path, r#"{"tokens": [1, 2, 3]}"#));
    let work = async {
        match server.inbox.recv().await {
            Some(Command::Warm(tokens, done)) => {
                done.send(Ok(())).unwrap();
                tokens
            }
            other => panic!("{other:?}"),
        }
    };
    let (response, tokens) = tokio::join!(warm, work);
    assert_eq!(tokens, [1, 2, 3]);
    assert!(
        text(response.unwrap())
            .await
            .contains("\"warmed_tokens\":3")
    );

    let mut router = server.router.clone();
    let reset = router.call(request("POST", "/lynx/v1/prefix-cache/reset", ""));
    let work = async {
        match server.inbox.recv().await {
            Some(Command::Forget(done)) => {
                let gone = Refusal::Unavailable("no engine".to_owned());
                done.send(Err(gone)).unwrap();
            }
            other => panic!("{other:?}"),
        }
    };
    let (response, ()) = tokio::join!(reset, work);
    assert_eq!(response.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
}
