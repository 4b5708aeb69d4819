//! Sources, flags and versions of each program.

use sha1::{Digest as _, Sha1};

/// Instructions for the build of one program.
pub(crate) struct Recipe {
    /// The program's name, which is its folder's also.
    pub(crate) name: &'static str,
    /// Its name for people.
    pub(crate) what: &'static str,
    pub(crate) version: &'static str,
    /// Duration of the build, in words.
    pub(crate) takes: &'static str,
    pub(crate) source: Source,
    /// Place of the version in the program.
    stamp: Stamp,
}

pub(crate) enum Source {
    /// A module of ours that names all its dependencies.
    Module { files: &'static [(&'static str, &'static str)], tags: &'static str },
    /// Programs and tests of modules of others. A module of ours names all their dependencies.
    Packages {
        files: &'static [(&'static str, &'static str)],
        tags: &'static str,
        /// Each command's package, and the name of its program.
        commands: &'static [(&'static str, &'static str)],
        /// Each package of tests, and the name of its program.
        tests: &'static [(&'static str, &'static str)],
    },
    /// A program of a module of ours, and eBPF programs of a module of others that it loads, with that module's commands.
    Ebpf {
        files: &'static [(&'static str, &'static str)],
        module: &'static str,
        /// Each command's folder in that module, and the name of its program.
        commands: &'static [(&'static str, &'static str)],
        /// The tags of the commands.
        tags: &'static str,
        /// The folder of the eBPF programs in that module.
        folder: &'static str,
        /// The names of the eBPF programs without `.c` and `.o`.
        objects: &'static [&'static str],
    },
    /// Commands of a module of others, which stands by itself.
    Install { module: &'static str, commands: &'static [&'static str] },
    /// A module of others that replaces modules, which `go install` refuses: it is built where it is the main one.
    Main {
        module: &'static str,
        /// Each command's folder, and the name that its program gets.
        commands: &'static [(&'static str, &'static str)],
        /// Each folder of tests, and the name of its program.
        tests: &'static [(&'static str, &'static str)],
        /// Files beside the programs.
        files: &'static [&'static str],
    },
}

enum Stamp {
    /// As Kubernetes' components do.
    Kubernetes,
    Variables(&'static [&'static str]),
    None,
}

/// The files of one of our modules.
macro_rules! module {
    ($name:literal, $($file:literal),+) => {
        &[$(($file, include_str!(concat!("../sources/", $name, "/", $file)))),+]
    };
}

/// The version of Kubernetes that is built (`sources/kubernetes/go.mod`).
pub const KUBERNETES_VERSION: &str = "v1.36.3";

pub(crate) const KUBERNETES: Recipe = Recipe {
    name: "kubernetes",
    what: "Kubernetes",
    version: KUBERNETES_VERSION,
    takes: "some minutes",
    source: Source::Module {
        files: module!("kubernetes", "go.mod", "go.sum", "main.go"),
        tags: "grpcnotrace",
    },
    stamp: Stamp::Kubernetes,
};

pub(crate) const KUBECTL: Recipe = Recipe {
    name: "kubectl",
    what: "kubectl",
    version: KUBERNETES_VERSION,
    takes: "a minute or two",
    source: Source::Module { files: module!("kubectl", "go.mod", "go.sum", "main.go"), tags: "" },
    stamp: Stamp::Kubernetes,
};

pub(crate) const COREDNS: Recipe = Recipe {
    name: "coredns",
    what: "CoreDNS",
    version: "v1.15.0",
    takes: "a minute or two",
    source: Source::Module {
        files: module!("coredns", "go.mod", "go.sum", "main.go"),
        tags: "grpcnotrace",
    },
    stamp: Stamp::None,
};

pub(crate) const PROBE: Recipe = Recipe {
    name: "probe",
    what: "the pods' program",
    version: "v1",
    takes: "seconds",
    source: Source::Module { files: module!("probe", "go.mod", "main.go", "crowd.go"), tags: "" },
    stamp: Stamp::None,
};

pub(crate) const HELM: Recipe = Recipe {
    name: "helm",
    what: "Helm",
    version: "v4.3.1",
    takes: "two minutes",
    source: Source::Install { module: "helm.sh/helm/v4", commands: &["cmd/helm"] },
    stamp: Stamp::Variables(&["helm.sh/helm/v4/internal/version.version"]),
};

pub(crate) const PLUGINS: Recipe = Recipe {
    name: "plugins",
    what: "the CNI plugins",
    version: "v1.9.1",
    takes: "a minute",
    source: Source::Install {
        module: "github.com/containernetworking/plugins",
        commands: &[
            "plugins/main/loopback",
            "plugins/meta/portmap",
            "plugins/meta/bandwidth",
            "plugins/meta/tuning",
        ],
    },
    stamp: Stamp::Variables(&[
        "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion",
    ]),
};

pub(crate) const CONTAINERD: Recipe = Recipe {
    name: "runtime",
    what: "containerd",
    version: "v2.4.2",
    takes: "some minutes",
    source: Source::Install {
        module: "github.com/containerd/containerd/v2",
        commands: &["cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"],
    },
    stamp: Stamp::Variables(&["github.com/containerd/containerd/v2/version.Version"]),
};

/// The version of amazon-vpc-cni that is built.
pub const VPC_CNI_VERSION: &str = "v1.23.1";

pub(crate) const VPC_CNI: Recipe = Recipe {
    name: "vpc-cni",
    what: "amazon-vpc-cni",
    version: VPC_CNI_VERSION,
    takes: "some minutes",
    source: Source::Main {
        module: "github.com/aws/amazon-vpc-cni-k8s",
        commands: &[
            ("cmd/aws-k8s-agent", "aws-k8s-agent"),
            ("cmd/aws-vpc-cni", "aws-vpc-cni"),
            ("cmd/aws-vpc-cni-init", "aws-vpc-cni-init"),
            ("cmd/grpc-health-probe", "grpc-health-probe"),
            ("cmd/routed-eni-cni-plugin", "aws-cni"),
            ("cmd/egress-cni-plugin", "egress-cni"),
        ],
        tests: &[],
        files: &["misc/10-aws.conflist", "misc/eni-max-pods.txt"],
    },
    stamp: Stamp::Variables(&[
        "github.com/aws/amazon-vpc-cni-k8s/pkg/version.Version",
        "main.version",
    ]),
};

pub(crate) const CONFORMANCE: Recipe = Recipe {
    name: "conformance",
    what: "Kubernetes' end-to-end tests and the programs of their images",
    version: KUBERNETES_VERSION,
    takes: "ten minutes or more",
    source: Source::Packages {
        files: module!("conformance", "go.mod", "go.sum", "main.go", "packages.go"),
        tags: "grpcnotrace",
        commands: &[
            (".", "agnhost"),
            ("k8s.io/kubernetes/test/images/agnhost", "agnhost.kubernetes"),
            ("k8s.io/kubernetes/test/images/regression-issue-74839", "regression-issue-74839"),
        ],
        tests: &[("k8s.io/kubernetes/test/e2e", "e2e.test")],
    },
    stamp: Stamp::Kubernetes,
};

pub(crate) const POLICY_API: Recipe = Recipe {
    name: "policy-api",
    what: "the conformance tests of network-policy-api",
    version: "v0.2.0",
    takes: "some minutes",
    source: Source::Main {
        module: "sigs.k8s.io/network-policy-api",
        commands: &[],
        tests: &[("conformance", "policy-api.test")],
        files: &[],
    },
    stamp: Stamp::None,
};

pub(crate) const NETWORK_POLICY_AGENT: Recipe = Recipe {
    name: "network-policy-agent",
    what: "aws-network-policy-agent",
    version: "v1.4.1",
    takes: "some minutes",
    source: Source::Ebpf {
        files: module!("network-policy-agent", "go.mod", "go.sum", "main.go", "vmlinux.h"),
        module: "github.com/aws/aws-network-policy-agent",
        commands: &[(".", "controller")],
        tags: "netgo,ebpf,core",
        folder: "pkg/ebpf/c",
        objects: &[
            "tc.v4ingress.bpf",
            "tc.v4egress.bpf",
            "tc.v6ingress.bpf",
            "tc.v6egress.bpf",
            "v4events.bpf",
            "v6events.bpf",
        ],
    },
    stamp: Stamp::Variables(&["github.com/aws/aws-network-policy-agent/pkg/version.GitVersion"]),
};

impl Recipe {
    /// Digest that distinguishes states of the sources.
    pub(crate) fn key(&self) -> String {
        let mut hash = Sha1::new();
        let (before, pairs, more) = match self.source {
            Source::Module { files, .. } => (String::new(), files, &[][..]),
            Source::Packages { files, commands, .. } | Source::Ebpf { files, commands, .. } => {
                (String::new(), files, commands)
            }
            Source::Main { commands, .. } => (format!("{}-", self.version), commands, &[][..]),
            Source::Install { .. } => return self.version.to_owned(),
        };
        for (name, text) in pairs.iter().chain(more) {
            hash.update(name);
            hash.update([0]);
            hash.update(text);
            hash.update([0]);
        }
        let digest = hash.finalize();
        digest.iter().take(8).fold(before, |key, byte| format!("{key}{byte:02x}"))
    }

    /// Strips the program and sets its version, which none of the programs can find by itself.
    pub(crate) fn link_flags(&self) -> String {
        let version = self.version;
        let mut flags = "-s -w".to_owned();
        match self.stamp {
            Stamp::None => {}
            Stamp::Variables(names) => {
                for name in names {
                    flags.push_str(&format!(" -X {name}={version}"));
                }
            }
            Stamp::Kubernetes => {
                let minor = version.split('.').nth(1).unwrap_or_default();
                for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                    for (name, value) in [
                        ("gitVersion", version),
                        ("gitMajor", "1"),
                        ("gitMinor", minor),
                        ("gitTreeState", "clean"),
                    ] {
                        flags.push_str(&format!(" -X {package}.{name}={value}"));
                    }
                }
            }
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text of the first file of a module of ours; empty for other sources.
    fn modules(recipe: &Recipe) -> &'static str {
        match recipe.source {
            Source::Module { files, .. }
            | Source::Packages { files, .. }
            | Source::Ebpf { files, .. } => files[0].1,
            Source::Install { .. } | Source::Main { .. } => "",
        }
    }

    #[test]
    fn the_versions_are_those_of_the_modules() {
        assert!(
            modules(&KUBERNETES).contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}\n"))
        );
        let of_tests = format!("k8s.io/kubernetes {KUBERNETES_VERSION}\n");
        assert!(modules(&CONFORMANCE).contains(&of_tests));
        let of_kubectl = KUBERNETES_VERSION.replace("v1.", "v0.");
        assert!(modules(&KUBECTL).contains(&format!("k8s.io/kubectl {of_kubectl}\n")));
        let Recipe { version, source, .. } = NETWORK_POLICY_AGENT;
        let Source::Ebpf { module, .. } = source else { panic!("another source") };
        assert!(modules(&NETWORK_POLICY_AGENT).contains(&format!("{module} {version}\n")));
        let of_coredns = format!("github.com/coredns/coredns {}\n", COREDNS.version);
        assert!(modules(&COREDNS).contains(&of_coredns));
    }

    #[test]
    fn other_sources_are_another_program() {
        let keys = [KUBERNETES, KUBECTL, COREDNS, PROBE].map(|recipe| recipe.key());
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), keys.len());
        assert_eq!(PLUGINS.key(), "v1.9.1");
    }
}
