mod taken;

use serde_json::json;

use super::*;

/// A deployment as a user writes it, with the API server's part added.
fn object(spec: Value) -> LynxDeployment {
    let mut object: LynxDeployment = serde_json::from_value(json!({
        "apiVersion": "lynx.dev/v1alpha1",
        "kind": "LynxDeployment",
        "metadata": {"name": "smol", "namespace": "team"},
        "spec": spec,
    }))
    .unwrap();
    object.metadata.uid = Some("8a7b".into());
    object
}

fn embedded() -> Value {
    json!({
        "model": {"name": "smol", "source": {"hostPath": {"path": "/var/lib/models/smol.gguf"}}},
        "engine": {"type": "Embedded"},
    })
}

fn config() -> OperatorConfig {
    let text = "
        agents: {service: lynx-operator-agents}
        images: {agent: lynx.dev/agent:0.1.0, engine: lynx.dev/engine:0.1.0}
        otlpEndpoint: http://collector.tracing:4317";
    OperatorConfig::parse(text, |name| match name {
        "POD_NAME" => Some("lynx-operator-0".into()),
        "POD_NAMESPACE" => Some("lynx-system".into()),
        "POD_IP" => Some("10.0.0.7".into()),
        _ => None,
    })
    .unwrap()
}

fn built(spec: Value) -> Vec<Built> {
    let object = object(spec);
    build(&Inputs {
        object: &object,
        config: &config(),
        prefill: 1,
        decode: 2,
        certificates: None,
    })
    .unwrap()
}

fn yaml(objects: &[Built]) -> String {
    let texts: Vec<_> = objects
        .iter()
        .map(|object| serde_norway::to_string(&object.value).unwrap())
        .collect();
    texts.join("---\n")
}

/// The Deployment of a role.
fn deployment(objects: &[Built], role: &str) -> Value {
    let name = format!("smol-{role}-");
    let found = objects
        .iter()
        .find(|object| object.resource.kind == "Deployment" && object.name.starts_with(&name));
    found.unwrap().value.clone()
}

fn pod(objects: &[Built], role: &str) -> Value {
    deployment(objects, role)["spec"]["template"]["spec"].clone()
}

fn merged(mut base: Value, patch: Value) -> Value {
    if let (Value::Object(base), Value::Object(patch)) = (&mut base, &patch) {
        for (key, value) in patch {
            let old = base.remove(key).unwrap_or(Value::Null);
            base.insert(key.clone(), merged(old, value.clone()));
        }
        return Value::Object(base.clone());
    }
    patch
}

#[test]
fn the_embedded_engine() {
    insta::assert_snapshot!(yaml(&built(embedded())));
}

#[test]
fn gpus_and_network_card_in_one_claim() {
    let spec = json!({
        "model": {"name": "org/large", "servedName": "large",
            "source": {"image": {"reference": "registry.example/models/large:1"}}},
        "engine": {"type": "VLLM", "image": "registry.example/vllm:1", "tensorParallelSize": 2,
            "args": ["--max-model-len", "8192"]},
        "prefill": {
            "gpus": {"resourceClaimTemplate": "gpu-and-nic", "request": "gpu"},
            "rdma": {"resourceClaimTemplate": "gpu-and-nic", "request": "nic", "gidIndex": 3},
        },
        "decode": {
            "gpus": {"resourceClaimTemplate": "gpu"},
            "rdma": {"resourceClaimTemplate": "nic"},
        },
        "transfer": {"transport": "RDMA"},
    });
    let objects = built(spec);
    insta::assert_snapshot!(
        serde_norway::to_string(&[pod(&objects, "prefill"), pod(&objects, "decode")]).unwrap()
    );
}

#[test]
fn device_plugins_give_the_engine_its_gpus_and_the_agent_its_card() {
    let spec = json!({
        "model": {"name": "large", "source": {"pvc": {"claimName": "models", "path": "large"}}},
        "engine": {"type": "Custom", "image": "registry.example/engine:1", "args": ["serve"],
            "ports": [{"name": "debug", "containerPort": 9999}]},
        "prefill": {
            "gpus": {"resourceName": "nvidia.com/gpu", "count": 2},
            "rdma": {"resourceName": "rdma/hca_shared_devices_a"},
        },
        "decode": {
            "template": {
                "resources": {"limits": {"cpu": "4", "memory": "8Gi"}},
                "nodeSelector": {"pool": "gpu"},
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "env": [{"name": "HOME", "value": "/cache"}],
                "volumes": [{"name": "cache", "emptyDir": {}}],
                "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
                "annotations": {"team": "a"},
            },
        },
        "transfer": {"anchor": {"profile": {"configMap": {"name": "large-profile"}}}},
    });
    let objects = built(spec);
    insta::assert_snapshot!(
        serde_norway::to_string(&[pod(&objects, "prefill"), pod(&objects, "decode")]).unwrap()
    );
}

/// What the agents make of it is their tests' to say.
#[test]
fn the_agents_of_an_engine_with_a_server_and_an_api_key() {
    let http = json!({"port": 9000, "apiKeySecret": {"name": "mine"}});
    let engine = json!({"type": "Custom", "image": "registry.example/engine:1", "http": http});
    let mut objects = built(merged(embedded(), json!({"engine": engine})));
    objects.retain(|object| object.resource.kind == "ConfigMap");
    for object in &mut objects {
        // Without the names, which follow from all of the pods.
        object.value = json!({"data": object.value["data"]});
    }
    insta::assert_snapshot!(yaml(&objects));
}

#[test]
fn every_object_belongs_to_the_deployment_and_says_so() {
    for object in built(embedded()) {
        let metadata = &object.value["metadata"];
        assert_eq!(metadata["ownerReferences"][0]["uid"], "8a7b", "{metadata}");
        assert_eq!(metadata["ownerReferences"][0]["controller"], true);
        assert_eq!(metadata["labels"][names::DEPLOYMENT], "smol");
        assert_eq!(metadata["namespace"], "team");
    }
}

/// Of each role, what its agent takes of the device plugin's resource, and the RDMA part of its file.
fn cards(prefill: Value, decode: Value) -> [(Value, Value); 2] {
    let objects = built(merged(
        embedded(),
        json!({"prefill": {"rdma": prefill}, "decode": {"rdma": decode}}),
    ));
    ["prefill", "decode"].map(|role| {
        let limits = &pod(&objects, role)["initContainers"][0]["resources"]["limits"];
        let name = format!("smol-{role}-");
        let file = objects
            .iter()
            .find(|object| object.resource.kind == "ConfigMap" && object.name.starts_with(&name));
        let text = file.unwrap().value["data"]["agent.yaml"].as_str().unwrap();
        let file: Value = serde_norway::from_str(text).unwrap();
        (limits["rdma/vf"].clone(), file["transfer"]["rdma"].clone())
    })
}

#[test]
fn rails_are_in_the_agents_file_and_as_many_cards_are_in_its_pod() {
    let [prefill, decode] = cards(
        json!({"resourceName": "rdma/vf", "rails": 2, "gidIndex": 3}),
        json!({"resourceName": "rdma/vf"}),
    );
    assert_eq!(prefill, (json!("2"), json!({"rails": 2, "gidIndex": 3})));
    assert_eq!(decode, (json!("1"), json!({})));
    let [claimed, _] = cards(
        json!({"resourceClaimTemplate": "nics", "rails": 4}),
        json!({"resourceClaimTemplate": "nics"}),
    );
    assert_eq!(claimed, (Value::Null, json!({"rails": 4})));
}

#[test]
fn no_container_has_a_right_that_it_does_not_need() {
    let objects = built(embedded());
    for role in ["prefill", "decode"] {
        let pod = pod(&objects, role);
        for container in [&pod["initContainers"][0], &pod["containers"][0]] {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false);
            assert_eq!(security["readOnlyRootFilesystem"], true);
            assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}));
        }
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["automountServiceAccountToken"], false);
    }
}

#[test]
fn arguments_that_the_spec_gives_replace_the_operators() {
    let spec = merged(
        embedded(),
        json!({"engine": {"args": ["--max-tokens=99", "--threads", "3"]}}),
    );
    let pod = pod(&built(spec), "decode");
    let args = pod["containers"][0]["args"].to_string();
    assert!(!args.contains("8192"), "{args}");
    assert!(
        args.ends_with(r#""--max-tokens=99","--threads","3"]"#),
        "{args}"
    );
}

#[test]
fn vllm_listens_for_its_agent_alone_where_the_agent_asks_it() {
    let vllm = |args: Value| {
        let engine = json!({"type": "VLLM", "image": "vllm", "args": args});
        let objects = built(merged(embedded(), json!({"engine": engine})));
        let args = pod(&objects, "decode")["containers"][0]["args"].to_string();
        let file = objects
            .iter()
            .find(|object| object.resource.kind == "ConfigMap");
        let file = file.unwrap().value["data"]["agent.yaml"].to_string();
        (args, file)
    };
    for (args, port) in [
        (json!([]), 8000),
        (json!(["--port", "9000"]), 9000),
        (json!(["--port=9001", "--x"]), 9001),
    ] {
        let (args, file) = vllm(args);
        assert!(args.contains(r#""--host","127.0.0.1""#), "{args}");
        assert_eq!(args.matches("--port").count(), 1, "{args}");
        let url = format!("http: http://127.0.0.1:{port}");
        assert!(file.contains(&url), "{file}");
    }
    let objects = built(embedded());
    assert!(
        !yaml(&objects).contains("http: http://127"),
        "the embedded engine has no server"
    );
}

/// A deployment's agent.yaml of a role.
fn agent_file(objects: &[Built], role: &str) -> String {
    let name = format!("smol-{role}-");
    let found = objects
        .iter()
        .find(|object| object.resource.kind == "ConfigMap" && object.name.starts_with(&name));
    let text = &found.unwrap().value["data"]["agent.yaml"];
    text.as_str().unwrap().to_owned()
}

#[test]
fn a_custom_engine_has_a_server_where_the_spec_says_so() {
    let file = |engine: Value| {
        let spec = merged(embedded(), json!({"engine": engine}));
        agent_file(&built(spec), "decode")
    };
    let custom = json!({"type": "Custom", "image": "x"});
    assert!(!file(custom.clone()).contains("http: http"));
    for (http, port) in [(json!({}), 8000), (json!({"port": 9000}), 9000)] {
        let file = file(merged(custom.clone(), json!({"http": http})));
        let url = format!("http: http://127.0.0.1:{port}\n");
        assert!(file.contains(&url), "{file}");
    }
    let vllm = json!({"type": "VLLM", "image": "x", "http": {"port": 9000}});
    let spec = merged(embedded(), json!({"engine": vllm}));
    let pod = pod(&built(spec), "decode").to_string();
    assert!(pod.contains(r#""--port","9000""#), "{pod}");
}

#[test]
fn prefill_agents_have_the_api_key_of_their_engines_server_and_vllm_is_told_it() {
    let spec = |type_: &str, env: Value| {
        let http = json!({"apiKeySecret": {"name": "mine", "key": "token"}});
        let engine = json!({"type": type_, "image": "x", "http": http, "env": env});
        merged(embedded(), json!({"engine": engine}))
    };
    let of_secret = json!({"secretKeyRef": {"name": "mine", "key": "token"}});
    for (type_, told) in [("VLLM", true), ("Custom", false)] {
        let objects = built(spec(type_, json!([])));
        let (prefill, decode) = (pod(&objects, "prefill"), pod(&objects, "decode"));
        let volume = json!({"name": "engine-api-key", "secret": {"secretName": "mine", "defaultMode": 0o440,
            "items": [{"key": "token", "path": "api-key"}]}});
        assert!(prefill["volumes"].as_array().unwrap().contains(&volume));
        let mount =
            json!({"name": "engine-api-key", "mountPath": "/etc/lynx-engine", "readOnly": true});
        let mounts = |container: &str| prefill[container][0]["volumeMounts"].clone();
        assert!(
            mounts("initContainers")
                .as_array()
                .unwrap()
                .contains(&mount)
        );
        assert!(!mounts("containers").to_string().contains("engine-api-key"));
        assert!(!decode.to_string().contains("engine-api-key"));
        let line = "apiKeyFile: /etc/lynx-engine/api-key\n";
        assert!(agent_file(&objects, "prefill").contains(line));
        assert!(!agent_file(&objects, "decode").contains("apiKeyFile"));
        for pod in [prefill, decode] {
            let variables = pod["containers"][0]["env"].as_array().unwrap().clone();
            let key = variables.iter().find(|one| one["name"] == "VLLM_API_KEY");
            assert_eq!(
                key.map(|key| key["valueFrom"].clone()),
                told.then(|| of_secret.clone())
            );
        }
    }
    let own = json!([{"name": "VLLM_API_KEY", "value": "own"}]);
    let pod = pod(&built(spec("VLLM", own)), "decode")["containers"][0]["env"].to_string();
    assert_eq!(pod.matches("VLLM_API_KEY").count(), 1, "{pod}");
    assert!(pod.contains(r#""value":"own""#), "{pod}");
}

/// The generation and the pods' revisions (prefill, decode) after a change of the spec.
fn keys(patch: Value) -> (String, [String; 2]) {
    let objects = built(merged(embedded(), patch));
    let label = |role: &str, name: &str| {
        let template = &deployment(&objects, role)["spec"]["template"];
        template["metadata"]["labels"][name].to_string()
    };
    (
        label("decode", names::GENERATION),
        ["prefill", "decode"].map(|role| label(role, names::REVISION)),
    )
}

#[test]
fn what_decides_compatibility_makes_a_new_generation() {
    let (generation, _) = keys(json!({}));
    for patch in [
        json!({"model": {"name": "other"}}),
        json!({"engine": {"args": ["--x"]}}),
        json!({"engine": {"image": "x"}}),
        json!({"transfer": {"split": "Engine"}}),
        json!({"transfer": {"anchor": {"profile": {"file": "/x"}}}}),
    ] {
        assert_ne!(keys(patch.clone()).0, generation, "{patch}");
    }
}

#[test]
fn replicas_resources_and_policy_restart_nobody() {
    let before = keys(json!({}));
    for patch in [
        json!({"decode": {"replicas": 7}}),
        json!({"rollout": {"maxSurge": 3, "strategy": "Recreate"}}),
        json!({"transfer": {"anchor": {"minBits": 3, "maxBits": "3.5"}}}),
        json!({"transfer": {"maxDraftTokens": 3, "fidelity": "Int8"}}),
        json!({"transfer": {"deadlines": {"transfer": "5s"}}}),
    ] {
        assert_eq!(keys(patch.clone()), before, "{patch}");
    }
    let (generation, revisions) =
        keys(json!({"observability": {"otlp": {"endpoint": "http://x:1"}}}));
    assert_eq!(generation, before.0);
    assert_ne!(revisions, before.1);
}

#[test]
fn a_change_of_one_role_alone_is_a_revision_of_that_role_alone() {
    let (generation, [prefill, decode]) = keys(json!({}));
    for template in [
        json!({"resources": {"limits": {"cpu": "4"}}}),
        json!({"annotations": {"a": "b"}}),
        json!({"nodeSelector": {"a": "b"}}),
    ] {
        let changed = keys(json!({"decode": {"template": template.clone()}}));
        assert_eq!(changed.0, generation, "{template}");
        let [prefill_now, decode_now] = changed.1;
        assert_eq!(prefill_now, prefill, "{template}");
        assert_ne!(decode_now, decode, "{template}");
    }
}

#[test]
fn quantities_that_are_equal_are_one_revision() {
    let of =
        |cpu: &str| keys(json!({"decode": {"template": {"resources": {"limits": {"cpu": cpu}}}}}));
    assert_eq!(of("2"), of("2000m"));
    assert_ne!(of("2"), of("3"));
}

#[test]
fn each_revision_has_its_own_names_and_selects_its_own_pods() {
    let objects = built(embedded());
    let decode = deployment(&objects, "decode");
    let revision = decode["spec"]["template"]["metadata"]["labels"][names::REVISION].clone();
    let name = format!("smol-decode-{}", revision.as_str().unwrap());
    assert_eq!(decode["metadata"]["name"], name);
    assert_eq!(
        decode["spec"]["selector"]["matchLabels"][names::REVISION],
        revision
    );
    let volumes = decode["spec"]["template"]["spec"]["volumes"].to_string();
    assert!(volumes.contains(&name), "{volumes}");
    let config = objects
        .iter()
        .find(|object| object.resource.kind == "ConfigMap" && object.name == name);
    assert!(config.is_some());
}

#[test]
fn a_container_names_a_claim_once_however_many_of_its_devices_it_needs() {
    let devices = json!({
        "gpus": {"resourceClaimTemplate": "both", "request": "gpu"},
        "rdma": {"resourceClaimTemplate": "both", "request": "nic"},
    });
    let spec = json!({
        "model": {"name": "m", "source": {"hostPath": {"path": "/m"}}},
        "engine": {"type": "Custom", "image": "x"},
        "prefill": devices, "decode": devices,
    });
    let pod = pod(&built(spec), "decode");
    let claims = |container: &str| pod[container][0]["resources"]["claims"].clone();
    assert_eq!(claims("initContainers"), json!([{"name": "gpu"}]));
    assert_eq!(
        claims("containers"),
        json!([{"name": "gpu", "request": "gpu"}])
    );
}

#[test]
fn certificates_are_mounted_and_a_change_of_their_mode_is_another_generation() {
    let tls = |tls: Value| json!({"transfer": {"tls": tls}});
    let objects = built(merged(
        embedded(),
        tls(json!({"mode": "Secret", "secretName": "mine"})),
    ));
    let pod = pod(&objects, "decode").to_string();
    assert!(
        pod.contains(r#""secretName":"mine""#) && pod.contains("/etc/lynx-tls"),
        "{pod}"
    );
    let clear = keys(json!({}));
    let operators = keys(tls(json!({"mode": "OperatorCA"})));
    assert_ne!(clear.0, operators.0);
}

#[test]
fn a_required_place_binds_decode_pods_to_prefill_pods_and_nobody_waits_for_each_other() {
    let placed = |mode: &str| {
        let topology = json!({"topology": {"mode": mode, "nodeLabel": "rack"}});
        let objects = built(merged(embedded(), topology));
        ["prefill", "decode"].map(|role| pod(&objects, role)["affinity"]["podAffinity"].clone())
    };
    let is_required =
        |affinity: &Value| !affinity["requiredDuringSchedulingIgnoredDuringExecution"].is_null();
    let [prefill, decode] = placed("Required");
    assert!(!is_required(&prefill) && is_required(&decode));
    let [prefill, decode] = placed("Preferred");
    assert!(!is_required(&prefill) && !is_required(&decode));
    assert!(!prefill.is_null() && !decode.is_null());
    assert_eq!(placed("None"), [Value::Null, Value::Null]);
}
