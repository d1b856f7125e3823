//! Encryption between agents.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether agents authenticate each other and encrypt (mTLS), and who makes their certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.mode == 'CertManager') == has(self.issuerRef)")
    .message("tls.issuerRef goes with tls.mode CertManager: give both or neither"),
    validation = Rule::new("(self.mode == 'Secret') == has(self.secretName)")
        .message("tls.secretName goes with tls.mode Secret: give both or neither"))]
pub struct Tls {
    /// `Disabled` (the default), `OperatorCA`: the operator makes and renews the certificates, `Secret`: they are in
    /// `secretName`, `CertManager`: cert-manager makes them.
    #[serde(default)]
    pub mode: TlsMode,
    /// A Secret of the same namespace with tls.crt, tls.key and ca.crt, the same for all pods. Agents take a new issue up
    /// without a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// cert-manager's issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerRef>,
}

/// Who makes certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsMode {
    /// Nobody.
    #[default]
    Disabled,
    /// The operator.
    #[serde(rename = "OperatorCA")]
    OperatorCa,
    /// The user, in a Secret.
    Secret,
    /// cert-manager.
    CertManager,
}

/// An issuer of cert-manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// `Issuer` (the default) or `ClusterIssuer`.
    #[serde(default = "issuer")]
    #[x_kube(validation = Rule::new("self in ['Issuer', 'ClusterIssuer']")
        .message("tls.issuerRef.kind is Issuer or ClusterIssuer"))]
    #[schemars(length(max = 16))]
    pub kind: String,
}

fn issuer() -> String {
    "Issuer".into()
}
