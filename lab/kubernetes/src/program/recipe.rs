//! What each program is made of.

use sha1::{Digest as _, Sha1};

/// How a program comes to be.
pub(super) struct Recipe {
    /// The program's name, which is its folder's also.
    pub(super) name: &'static str,
    /// Its name for people.
    pub(super) what: &'static str,
    pub(super) version: &'static str,
    /// How long its build takes, in words.
    pub(super) takes: &'static str,
    pub(super) source: Source,
    /// Where it learns its version.
    stamp: Stamp,
}

/// Where its sources are.
pub(super) enum Source {
    /// A module of ours that names all it stands on.
    Module { files: &'static [(&'static str, &'static str)], tags: &'static str },
    /// Commands of a module of others, which stands by itself.
    Install { module: &'static str, commands: &'static [&'static str] },
}

enum Stamp {
    /// As Kubernetes' components do.
    Kubernetes,
    /// A variable.
    Variable(&'static str),
    None,
}

/// The files of one of our modules.
macro_rules! module {
    ($name:literal, $($file:literal),+) => {
        &[$(($file, include_str!(concat!("../../programs/", $name, "/", $file)))),+]
    };
}

/// The version of Kubernetes that is built (`programs/kubernetes/go.mod`).
pub const VERSION: &str = "v1.36.3";

pub(super) const KUBERNETES: Recipe = Recipe {
    name: "kubernetes",
    what: "Kubernetes",
    version: VERSION,
    takes: "some minutes",
    source: Source::Module {
        files: module!("kubernetes", "go.mod", "go.sum", "main.go"),
        tags: "grpcnotrace",
    },
    stamp: Stamp::Kubernetes,
};

pub(super) const KUBECTL: Recipe = Recipe {
    name: "kubectl",
    what: "kubectl",
    version: VERSION,
    takes: "a minute or two",
    source: Source::Module { files: module!("kubectl", "go.mod", "go.sum", "main.go"), tags: "" },
    stamp: Stamp::Kubernetes,
};

pub(super) const COREDNS: Recipe = Recipe {
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

pub(super) const PROBE: Recipe = Recipe {
    name: "probe",
    what: "the pods' program",
    version: "v1",
    takes: "seconds",
    source: Source::Module { files: module!("probe", "go.mod", "main.go"), tags: "" },
    stamp: Stamp::None,
};

pub(super) const HELM: Recipe = Recipe {
    name: "helm",
    what: "Helm",
    version: "v4.3.1",
    takes: "two minutes",
    source: Source::Install { module: "helm.sh/helm/v4", commands: &["cmd/helm"] },
    stamp: Stamp::Variable("helm.sh/helm/v4/internal/version.version"),
};

pub(super) const PLUGINS: Recipe = Recipe {
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
    stamp: Stamp::Variable(
        "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion",
    ),
};

impl Recipe {
    /// Tells one state of the sources from another.
    pub(super) fn key(&self) -> String {
        let Source::Module { files, .. } = self.source else { return self.version.to_owned() };
        let mut hash = Sha1::new();
        for (name, text) in files {
            hash.update(name);
            hash.update([0]);
            hash.update(text);
            hash.update([0]);
        }
        let digest = hash.finalize();
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Strips the program and tells it its version, which none can find out by itself.
    pub(super) fn link_flags(&self) -> String {
        let version = self.version;
        let mut flags = "-s -w".to_owned();
        match self.stamp {
            Stamp::None => {}
            Stamp::Variable(name) => flags.push_str(&format!(" -X {name}={version}")),
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

    /// What the module says beside its name.
    fn modules(recipe: &Recipe) -> &'static str {
        match recipe.source {
            Source::Module { files, .. } => files[0].1,
            Source::Install { .. } => "",
        }
    }

    #[test]
    fn the_versions_are_those_of_the_modules() {
        assert!(modules(&KUBERNETES).contains(&format!("k8s.io/kubernetes {VERSION}\n")));
        let of_kubectl = VERSION.replace("v1.", "v0.");
        assert!(modules(&KUBECTL).contains(&format!("k8s.io/kubectl {of_kubectl}\n")));
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
