"""The cluster's certificates, made anew for each: a CA, the servers', and one per client, with its kubeconfig; and another
CA for the API server as the client of other APIs, which would take anybody of the first for it.

A certificate's organisation is the Kubernetes group and its common name the user, which is how the API server's RBAC
rules know the components: see "Default roles and role bindings" in the Kubernetes documentation.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

from .layout import FIRST_SERVICE_ADDRESS, NODE_NAME, Layout

DAYS = "7"

CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE_NAME}",
    "coredns": "/CN=system:coredns",
    "kubelet-client": "/O=system:masters/CN=kube-apiserver-kubelet-client",
}


def make(layout: Layout) -> None:
    """Writes every key, certificate and kubeconfig."""
    (layout.folder / "pki").mkdir()
    authority(layout, "ca", "/CN=lynx-test-ca")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    server(layout, "apiserver", names, ["127.0.0.1", layout.address, FIRST_SERVICE_ADDRESS])
    server(layout, "kubelet-server", [NODE_NAME], [layout.address])
    for name, subject in CLIENTS.items():
        certificate(layout, name, subject, ["extendedKeyUsage=clientAuth"])
        kubeconfig(layout, name)
    authority(layout, "front-proxy-ca", "/CN=lynx-test-front-proxy-ca")
    certificate(layout, "front-proxy", "/CN=front-proxy", ["extendedKeyUsage=clientAuth"], "front-proxy-ca")
    layout.pki("admin.kubeconfig").rename(layout.kubeconfig)
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", layout.pki("accounts.key"))
    openssl("pkey", "-in", layout.pki("accounts.key"), "-pubout", "-out", layout.pki("accounts.pub"))


def authority(layout: Layout, name: str, subject: str) -> None:
    usage = ["-addext", "keyUsage=keyCertSign,digitalSignature"]
    request(layout.pki(f"{name}.key"), layout.pki(f"{name}.crt"), subject, *usage)


def server(layout: Layout, name: str, hosts: list[str], addresses: list[str]) -> None:
    alternatives = [f"DNS:{host}" for host in hosts] + [f"IP:{address}" for address in addresses]
    extensions = ["extendedKeyUsage=serverAuth", f"subjectAltName={','.join(alternatives)}"]
    certificate(layout, name, f"/CN={name}", extensions)


def certificate(layout: Layout, name: str, subject: str, extensions: list[str], authority: str = "ca") -> None:
    """One that a CA signed."""
    more = [word for each in ["basicConstraints=CA:FALSE", *extensions] for word in ("-addext", each)]
    signer = ["-CA", layout.pki(f"{authority}.crt"), "-CAkey", layout.pki(f"{authority}.key")]
    request(layout.pki(f"{name}.key"), layout.pki(f"{name}.crt"), subject, *signer, *more)


def request(key: Path, crt: Path, subject: str, *more: str | Path) -> None:
    # Elliptic curves, because an RSA key takes a hundred times as long to make.
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    openssl("req", "-x509", *curve, "-keyout", key, "-out", crt, "-subj", subject, "-days", DAYS, *more)


def kubeconfig(layout: Layout, user: str) -> None:
    """JSON, which is YAML too, with the keys inside it, so that it can be copied."""
    authority = encoded(layout.pki("ca.crt"))
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lynx-test",
        "clusters": [
            {"name": "lynx-test", "cluster": {"server": layout.api, "certificate-authority-data": authority}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": encoded(layout.pki(f"{user}.crt")),
                    "client-key-data": encoded(layout.pki(f"{user}.key")),
                },
            }
        ],
        "contexts": [{"name": "lynx-test", "context": {"cluster": "lynx-test", "user": user}}],
    }
    layout.pki(f"{user}.kubeconfig").write_text(json.dumps(config, indent=2) + "\n")


def encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
