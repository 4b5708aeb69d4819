//! The list of the image's parts (a software bill of materials) in the CycloneDX format: crates, the eBPF programs, Go
//! modules and Debian packages. Equal parts give an equal list.

use crate::{architecture::Architecture, binaries, generate};
use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A part, named as in its registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    purl: String,
    name: String,
    version: String,
    licence: Option<String>,
}

/// The parts of our programs, of these plugins, and of the base with this dpkg folder.
///
/// # Errors
/// If cargo cannot list the dependencies of the programs.
pub(super) fn of_the_image(
    architecture: Architecture,
    plugins: &[PathBuf],
    packages: Option<&Path>,
) -> Result<Value> {
    let mut parts = BTreeSet::from([ebpf_programs()]);
    for triple in [architecture.triple(), architecture.static_triple()] {
        let metadata = MetadataCommand::new()
            .current_dir(generate::root())
            .other_options(["--locked".into(), "--filter-platform".into(), triple])
            .exec()
            .context("cargo metadata")?;
        parts.extend(crates(&metadata));
    }
    for plugin in plugins {
        parts.extend(modules(&build_information(plugin)?));
    }
    if let Some(folder) = packages {
        for text in stanzas(folder)? {
            parts.extend(package(&text));
        }
    }
    Ok(document(env!("CARGO_PKG_VERSION"), &parts))
}

fn document(version: &str, parts: &BTreeSet<Part>) -> Value {
    let component = |part: &Part| {
        let mut component = json!({
            "type": "library",
            "bom-ref": part.purl,
            "purl": part.purl,
            "name": part.name,
            "version": part.version,
        });
        if let Some(licence) = &part.licence {
            component["licenses"] = json!([{ "expression": licence }]);
        }
        component
    };
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": format!("pkg:generic/ferrule@{version}"),
                "name": "ferrule",
                "version": version,
                "licenses": [{ "license": { "id": "Apache-2.0" } }],
            },
        },
        "components": parts.iter().map(component).collect::<Vec<_>>(),
    })
}

/// The object file of `datapath/bpf`. Its section `license` names both licenses to the kernel.
fn ebpf_programs() -> Part {
    let version = env!("CARGO_PKG_VERSION");
    Part {
        purl: format!("pkg:generic/ferrule-bpf@{version}"),
        name: "ferrule-bpf".to_owned(),
        version: version.to_owned(),
        licence: Some("BSD-2-Clause OR GPL-2.0-only".to_owned()),
    }
}

/// The crates that are linked into the programs of the image.
fn crates(metadata: &Metadata) -> BTreeSet<Part> {
    let Some(resolve) = &metadata.resolve else { return BTreeSet::new() };
    let ours = metadata.packages.iter().filter(|package| {
        package.source.is_none() && binaries::image_crates().any(|name| package.name == name)
    });
    let mut queue: Vec<_> = ours.map(|package| package.id.clone()).collect();
    let mut seen = BTreeSet::new();
    let mut parts = BTreeSet::new();
    while let Some(id) = queue.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let package = &metadata[&id];
        parts.insert(Part {
            purl: format!("pkg:cargo/{}@{}", package.name, package.version),
            name: package.name.to_string(),
            version: package.version.to_string(),
            // The form before license expressions existed.
            licence: package.license.as_ref().map(|licence| licence.replace('/', " OR ")),
        });
        let linked = resolve.nodes.iter().filter(|node| node.id == id).flat_map(|node| &node.deps);
        let linked = linked
            .filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
        queue.extend(linked.map(|dep| dep.pkg.clone()));
    }
    parts
}

/// The build information that Go writes into a program.
fn build_information(program: &Path) -> Result<String> {
    let output = Command::new("go").args(["version", "-m"]).arg(program).output();
    let output = output.context("start go")?;
    anyhow::ensure!(output.status.success(), "go version -m {}", program.display());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The modules in build information: lines of `mod` or `dep`, name and version.
fn modules(text: &str) -> BTreeSet<Part> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            words.next().filter(|kind| ["mod", "dep"].contains(kind))?;
            let (name, version) = (words.next()?, words.next()?);
            Some(Part {
                purl: format!("pkg:golang/{name}@{version}"),
                name: name.to_owned(),
                version: version.to_owned(),
                licence: None,
            })
        })
        .filter(|part| part.version != "(devel)")
        .collect()
}

/// The dpkg entries of all packages: from one file, or from one file per package.
fn stanzas(folder: &Path) -> Result<Vec<String>> {
    let read =
        |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let mut found: Vec<String> = Vec::new();
    let whole = folder.join("status");
    if whole.is_file() {
        found.extend(read(&whole)?.split("\n\n").map(str::to_owned));
    }
    let each = folder.join("status.d");
    if each.is_dir() {
        for entry in fs::read_dir(&each).with_context(|| format!("read {}", each.display()))? {
            found.push(read(&entry.context("read the list of packages")?.path())?);
        }
    }
    Ok(found)
}

/// Parses an entry. `None` if the package is not installed.
fn package(stanza: &str) -> Option<Part> {
    let fields: BTreeMap<&str, &str> =
        stanza.lines().filter_map(|line| line.split_once(": ")).collect();
    let field = |name: &str| fields.get(name).copied();
    field("Status").filter(|status| status.ends_with(" installed"))?;
    let (name, version) = (field("Package")?, field("Version")?);
    let architecture = field("Architecture")?;
    // Characters with another meaning in a package URL.
    let told = version.replace('+', "%2B").replace('~', "%7E").replace(':', "%3A");
    Some(Part {
        purl: format!("pkg:deb/debian/{name}@{told}?arch={architecture}"),
        name: name.to_owned(),
        version: version.to_owned(),
        licence: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_package_is_a_part_and_a_removed_one_is_not() {
        let there = "Package: libgmp10\nStatus: install ok installed\nArchitecture: amd64\n\
                     Version: 2:6.2.1+dfsg1-1.1\nDescription: numbers\n large ones: all\n";
        let part = package(there).expect("a part");
        assert_eq!(part.purl, "pkg:deb/debian/libgmp10@2%3A6.2.1%2Bdfsg1-1.1?arch=amd64");
        let gone = there.replace("install ok installed", "deinstall ok config-files");
        assert_eq!(package(&gone), None);
        assert_eq!(package(""), None);
    }

    #[test]
    fn what_a_go_program_is_made_of_is_read_from_it() {
        let text = "portmap: go1.26.8\n\tpath\tgithub.com/containernetworking/plugins/plugins/meta/portmap\n\
                    \tmod\tferrule.io/plugins\t(devel)\t\n\
                    \tdep\tgithub.com/containernetworking/plugins\tv1.9.1\th1:x=\n\
                    \tbuild\t-trimpath=true\n";
        let parts: Vec<String> = modules(text).into_iter().map(|part| part.purl).collect();
        assert_eq!(parts, ["pkg:golang/github.com/containernetworking/plugins@v1.9.1"]);
    }

    #[test]
    fn what_the_programs_link_is_listed_and_what_only_tests_use_is_not() {
        let list = of_the_image(Architecture::Arm64, &[], None).expect("a list");
        let names: BTreeSet<&str> = list["components"]
            .as_array()
            .expect("components")
            .iter()
            .filter_map(|part| part["name"].as_str())
            .collect();
        assert!(names.contains("aws-sdk-ec2") && names.contains("cni"), "{names:?}");
        let bpf = list["components"].as_array().expect("components").iter();
        let bpf: Vec<_> = bpf.filter(|part| part["name"] == "ferrule-bpf").collect();
        assert_eq!(bpf.len(), 1);
        assert_eq!(bpf[0]["licenses"], json!([{ "expression": "BSD-2-Clause OR GPL-2.0-only" }]));
        assert!(!names.contains("proptest") && !names.contains("lab-cloud"), "{names:?}");
    }
}
