//! What the CRD's rules can't see: names and ports that collide with the operator's own, quantities that aren't.
//!
//! Pure. A refused spec is no error of the operator: it gets a condition, and waits for its user.

use k8s_openapi::api::core::v1::EnvVar;
use lynx_crds::LynxDeployment;
use lynx_crds::spec::{Engine, Pool, Template};

use crate::build::engine;
use crate::build::names::Role;
use crate::build::taken::Taken;
use crate::scaling::quantity::number;

/// Everything that is wrong with a spec, in sentences for its user.
pub fn objections(object: &LynxDeployment) -> Vec<String> {
    let spec = &object.spec;
    let mut objections = Vec::new();
    let [prefill, decode] = Role::ALL.map(|role| Taken::of(object, role));
    objections.extend(of_pool("spec.prefill", &spec.prefill.pool, &prefill));
    objections.extend(of_pool("spec.decode", &spec.decode.pool, &decode));
    objections.extend(of_engine(&spec.engine, &prefill.and(decode)));
    if let Some(autoscaling) = &spec.decode.autoscaling
        && let Some(quantity) = &autoscaling.target.pending_kv_bytes
        && number(&quantity.0).is_none()
    {
        objections.push(format!(
            "spec.decode.autoscaling.target.pendingKvBytes: `{}` is no number of bytes such as 512Mi",
            quantity.0
        ));
    }
    if let Some(promised) = &spec.transfer.promised_rate {
        for (field, rate) in [("same", &promised.same), ("cross", &promised.cross)] {
            if let Some(rate) = rate.as_ref().filter(|rate| number(&rate.0).is_none()) {
                objections.push(format!(
                    "spec.transfer.promisedRate.{field}: `{}` is no number of bits per second such as 100G",
                    rate.0
                ));
            }
        }
    }
    objections
}

fn of_engine(engine: &Engine, taken: &Taken) -> Vec<String> {
    let mut objections = of_variables("spec.engine.env", &engine.env, taken);
    for port in &engine.ports {
        if taken.ports.contains(&port.container_port.into()) {
            objections.push(format!(
                "spec.engine.ports: port {} is the agent's; engine and agent share the pod's ports",
                port.container_port
            ));
        }
        if taken.port_names.contains(&port.name) {
            objections.push(format!(
                "spec.engine.ports: `{}` is the name of one of the agent's ports; choose another",
                port.name
            ));
        }
    }
    if let Some(port) = engine::http_port(engine)
        && taken.ports.contains(&port.into())
    {
        objections.push(format!(
            "spec.engine.http.port: port {port} is the agent's; engine and agent share the pod's ports"
        ));
    }
    if engine::says_port_twice(engine) {
        objections.push(
            "spec.engine.args: leave out --port, or spec.engine.http.port: both say where vLLM listens".into(),
        );
    }
    objections
}

fn of_pool(path: &str, pool: &Pool, taken: &Taken) -> Vec<String> {
    let mut objections = Vec::new();
    if let Some(template) = &pool.template {
        objections.extend(of_template(&format!("{path}.template"), template, taken));
    }
    if let (Some(gpus), Some(rdma)) = (&pool.gpus, &pool.rdma)
        && gpus.resource_claim_template.is_some()
        && gpus.resource_claim_template == rdma.resource_claim_template
        && (gpus.request.is_none() || rdma.request.is_none())
    {
        objections.push(format!(
            "{path}: gpus and rdma name the same claim template, so both need `request` to say which of its devices they are"
        ));
    }
    objections
}

fn of_template(path: &str, template: &Template, taken: &Taken) -> Vec<String> {
    let mut objections = of_volumes(path, template, taken);
    objections.extend(of_variables(&format!("{path}.env"), &template.env, taken));
    for key in template.annotations.keys() {
        if taken.annotations.contains(key) {
            objections.push(format!(
                "{path}.annotations: `{key}` is the operator's; leave it out"
            ));
        }
    }
    objections
}

fn of_volumes(path: &str, template: &Template, taken: &Taken) -> Vec<String> {
    let mut objections = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for volume in &template.volumes {
        let name = volume.name.as_str();
        if taken.volumes.contains(name) {
            objections.push(format!(
                "{path}.volumes: `{name}` is the name of one of the operator's volumes; choose another"
            ));
        } else if names.contains(&name) {
            objections.push(format!("{path}.volumes: two are called `{name}`"));
        }
        names.push(name);
    }
    let mut folders: Vec<&str> = Vec::new();
    for mount in &template.volume_mounts {
        if !names.contains(&mount.name.as_str()) {
            objections.push(format!(
                "{path}.volumeMounts: there is no volume `{}` in {path}.volumes",
                mount.name
            ));
        }
        let folder = mount.mount_path.trim_end_matches('/');
        if taken.folders.contains(folder) {
            objections.push(format!(
                "{path}.volumeMounts: {} is where the operator mounts a volume of its own",
                mount.mount_path
            ));
        } else if folders.contains(&folder) {
            objections.push(format!("{path}.volumeMounts: two are at {folder}"));
        }
        folders.push(folder);
    }
    objections
}

/// The user's variables win over the operator's, but for those by which engine and agent find each other.
fn of_variables(path: &str, variables: &[EnvVar], taken: &Taken) -> Vec<String> {
    let variables = variables
        .iter()
        .filter(|variable| taken.variables.contains(&variable.name));
    let objection = |variable: &EnvVar| {
        format!(
            "{path}: `{}` is what the operator tells the engine of its pod; leave it out",
            variable.name
        )
    };
    variables.map(objection).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn objections_to(decode: Value, ports: Value) -> Vec<String> {
        let object = serde_json::from_value(json!({
            "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment",
            "metadata": {"name": "smol"},
            "spec": {
                "model": {"name": "smol", "source": {"hostPath": {"path": "/m"}}},
                "engine": {"type": "Custom", "image": "x", "ports": ports},
                "decode": decode,
            },
        }));
        objections(&object.unwrap())
    }

    #[test]
    fn a_plain_spec_is_fine() {
        assert!(objections_to(json!({}), json!([])).is_empty());
    }

    fn objections_to_engine(engine: Value) -> Vec<String> {
        let object = serde_json::from_value(json!({
            "apiVersion": "lynx.dev/v1alpha1", "kind": "LynxDeployment",
            "metadata": {"name": "smol"},
            "spec": {"model": {"name": "smol", "source": {"hostPath": {"path": "/m"}}}, "engine": engine},
        }));
        objections(&object.unwrap())
    }

    #[test]
    fn an_engines_server_has_one_port_that_is_not_the_agents() {
        let custom = |port: u16| json!({"type": "Custom", "image": "x", "http": {"port": port}});
        let vllm = |args: Value, http: Value| json!({"type": "VLLM", "image": "x", "args": args, "http": http});
        for fine in [
            custom(9000),
            vllm(json!(["--port=9000"]), json!({})),
            vllm(json!([]), json!({"port": 9000})),
        ] {
            assert_eq!(objections_to_engine(fine), [""; 0]);
        }
        for (wrong, why) in [
            (custom(8081), "port 8081 is the agent's"),
            (
                vllm(json!(["--port=8080"]), json!({})),
                "port 8080 is the agent's",
            ),
            (
                vllm(json!(["--port", "9"]), json!({"port": 9})),
                "leave out --port",
            ),
        ] {
            let found = objections_to_engine(wrong);
            assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
        }
    }

    #[test]
    fn every_collision_is_named_at_once() {
        let decode = json!({
            "template": {
                "volumes": [{"name": "tmp"}, {"name": "a"}, {"name": "a"}],
                "volumeMounts": [{"name": "b", "mountPath": "/run/lynx/"}],
            },
            "gpus": {"resourceClaimTemplate": "both", "request": "gpu"},
            "rdma": {"resourceClaimTemplate": "both"},
            "autoscaling": {"maxReplicas": 3, "target": {"pendingKvBytes": "many"}},
        });
        let ports = json!([{"name": "x", "containerPort": 8080}]);
        let found = objections_to(decode, ports);
        assert_eq!(found.len(), 7, "{found:#?}");
    }
}
