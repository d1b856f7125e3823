use super::*;

fn pod(name: &str) -> Option<String> {
    match name {
        "POD_NAME" => Some("lynx-operator-0".into()),
        "POD_NAMESPACE" => Some("lynx-system".into()),
        "POD_IP" => Some("10.0.0.7".into()),
        _ => None,
    }
}

#[test]
fn an_empty_file_and_the_downward_api_are_enough() {
    let config = OperatorConfig::parse("", pod).unwrap();
    assert_eq!(config.pod.name, "lynx-operator-0");
    assert_eq!(config.agents_url(), "");
    assert!(config.watches("anything"));
}

#[test]
fn all_mistakes_are_named_at_once() {
    let text = "leaderElection: {durationSeconds: 5, graceSeconds: 5}\nimages: {agent: '', pullPolicy: Sometimes}";
    let error = OperatorConfig::parse(text, |name| {
        (name == "LYNX_OPERATOR_LISTEN_HTTP").then(|| "nowhere".into())
    })
    .unwrap_err();
    assert_eq!(error.mistakes.len(), 6, "{error}");
}

#[test]
fn an_unknown_field_is_refused_by_name() {
    let error = OperatorConfig::parse("imagse: {}", pod).unwrap_err();
    assert!(error.to_string().contains("imagse"), "{error}");
}

#[test]
fn the_environment_replaces_what_the_file_says() {
    let text = "agents: {service: agents, port: 7000}\nnamespaces: [a]";
    let config = OperatorConfig::parse(text, |name| match name {
        "LYNX_OPERATOR_NAMESPACES" => Some("b, c".into()),
        other => pod(other),
    })
    .unwrap();
    assert_eq!(config.namespaces, ["b", "c"]);
    assert!(config.watches("c") && !config.watches("a"));
    assert_eq!(config.agents_url(), "http://agents.lynx-system.svc:7000");
}
