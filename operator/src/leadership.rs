//! Who of the replicas writes.
//!
//! All replicas watch and serve; the one that holds the Lease writes, and is the only one in the EndpointSlice behind the
//! agents' Service. The lease is given back at the end, so that the next leader needn't wait for it to run out.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource as _};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::build::names::{MANAGER, strings};
use crate::config::OperatorConfig;

/// Between two attempts at something that the API server refused.
const AGAIN: Duration = Duration::from_secs(2);

/// Takes part in the election until `shutdown`, then gives the lease back. `leading` says who leads.
pub async fn run(
    client: Client,
    config: OperatorConfig,
    leading: watch::Sender<bool>,
    shutdown: CancellationToken,
) {
    while !shutdown.is_cancelled() {
        let Some(manager) = manager(&client, &config, &shutdown).await else {
            break;
        };
        let (mut holds, task) = manager.watch().await;
        loop {
            let changed = tokio::select! {
                () = shutdown.cancelled() => break,
                changed = holds.changed() => changed,
            };
            if changed.is_err() {
                break;
            }
            let now = *holds.borrow_and_update();
            tracing::info!(
                leading = now,
                pod = config.pod.name,
                "the leadership changed"
            );
            leading.send_replace(now);
            if now {
                tokio::spawn(receive_agents(
                    client.clone(),
                    config.clone(),
                    leading.subscribe(),
                ));
            }
        }
        leading.send_replace(false);
        // The manager gives the lease back when nobody listens any more.
        drop(holds);
        match task.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease was not given back: it runs out"),
            Err(error) => tracing::warn!(%error, "the election's task ended"),
        }
    }
}

/// Who holds the Lease: the pod and its version, so that during an upgrade everybody sees whose word it is.
fn identity(pod: &str) -> String {
    format!("{pod}_{}", env!("CARGO_PKG_VERSION"))
}

/// The Lease, made where it isn't there; `None` at the end.
async fn manager(
    client: &Client,
    config: &OperatorConfig,
    shutdown: &CancellationToken,
) -> Option<LeaseManager> {
    let election = &config.leader_election;
    loop {
        let built = LeaseManagerBuilder::new(client.clone(), &election.lease)
            .with_namespace(&config.pod.namespace)
            .with_identity(identity(&config.pod.name))
            .with_grace(1)
            .with_duration(election.duration_seconds.into())
            .with_grace(election.grace_seconds.into())
            .build()
            .await;
        match built {
            Ok(manager) => return Some(manager),
            Err(error) => {
                tracing::warn!(%error, lease = election.lease, "no election: trying again")
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// Puts this replica, and only it, behind the agents' Service.
async fn receive_agents(
    client: Client,
    config: OperatorConfig,
    mut leading: watch::Receiver<bool>,
) {
    if config.agents.service.is_empty() {
        return;
    }
    while *leading.borrow_and_update() {
        match apply_slice(&client, &config).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "agents don't find this leader yet: trying again");
            }
        }
        tokio::select! {
            changed = leading.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

async fn apply_slice(client: &Client, config: &OperatorConfig) -> Result<(), kube::Error> {
    let namespace = &config.pod.namespace;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get(&config.agents.service).await?;
    let slice = slice(config, &service);
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let params = PatchParams::apply(MANAGER).force();
    let name = slice.metadata.name.clone().unwrap_or_default();
    slices.patch(&name, &params, &Patch::Apply(&slice)).await?;
    tracing::info!(slice = name, ip = config.pod.ip, "agents find this leader");
    Ok(())
}

fn slice(config: &OperatorConfig, service: &Service) -> EndpointSlice {
    let name = &config.agents.service;
    let family = if config.pod.ip.contains(':') {
        "IPv6"
    } else {
        "IPv4"
    };
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(format!("{name}-leader-{}", family.to_lowercase())),
            namespace: Some(config.pod.namespace.clone()),
            labels: Some(strings([
                ("kubernetes.io/service-name", name),
                ("endpointslice.kubernetes.io/managed-by", MANAGER),
            ])),
            owner_references: service.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: family.into(),
        endpoints: vec![Endpoint {
            addresses: vec![config.pod.ip.clone()],
            conditions: Some(EndpointConditions {
                ready: Some(true),
                ..EndpointConditions::default()
            }),
            ..Endpoint::default()
        }],
        ports: Some(vec![EndpointPort {
            name: port_name(service),
            port: Some(config.listen.agents.port().into()),
            protocol: Some("TCP".into()),
            ..EndpointPort::default()
        }]),
    }
}

/// A slice's port must have the name of the Service's.
fn port_name(service: &Service) -> Option<String> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    ports.first()?.name.clone()
}
