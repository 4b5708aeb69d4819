//! System packages that the commands need, and their installation on Debian.

use crate::say;
use anyhow::{Context as _, Result, bail};
use std::{
    path::Path,
    process::{Command, ExitCode, Stdio},
};

/// A requirement of a lane or command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// A C linker and static C library, for every build.
    Linker,
    /// A C++ compiler, for libFuzzer.
    Cxx,
    /// `ip`, to lay out the lab.
    Iproute,
    /// `nft`, for the lab's router.
    Nft,
    /// Both iptables, over nft and legacy, to distinguish them.
    Iptables,
    /// Python with venv, for boto3 as an independent client.
    Python,
    /// Go, to build Kubernetes, containerd and amazon-vpc-cni from their modules.
    Go,
    /// containerd with `runc` and the loopback plugin, to run real sandboxes.
    Runtime,
    /// QEMU and a shell for its machine.
    Machine,
    /// The tools that build the base of the image and the image.
    Image,
    /// `promtool`, the checker for metrics and rules from Prometheus.
    Prometheus,
    /// clang, for the eBPF programs.
    Clang,
    /// `libfaketime`, for programs whose clock is wrong.
    Faketime,
    /// The plugins of the CNI project, which the conflist of amazon-vpc-cni chains.
    Plugins,
    /// The C compiler and linker for amd64 on another architecture.
    CrossAmd64,
    /// The C compiler and linker for arm64 on another architecture.
    CrossArm64,
    /// The emulator for programs of another architecture.
    Emulator,
}

struct Package {
    need: Need,
    debian: &'static str,
    present: fn() -> bool,
    elsewhere: &'static str,
}

fn on_path(program: &str) -> bool {
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(usual.split(':')).any(|dir| Path::new(dir).join(program).is_file())
}

const PACKAGES: &[Package] = &[
    Package {
        need: Need::Linker,
        debian: "gcc libc6-dev",
        present: || on_path("cc"),
        elsewhere: "a C compiler named cc, and the static C library (glibc-static)",
    },
    Package {
        need: Need::Cxx,
        debian: "g++",
        present: || on_path("c++"),
        elsewhere: "a C++ compiler named c++",
    },
    Package {
        need: Need::Iproute,
        debian: "iproute2",
        present: || on_path("ip"),
        elsewhere: "iproute2 (the program ip)",
    },
    Package {
        need: Need::Nft,
        debian: "nftables",
        present: || on_path("nft"),
        elsewhere: "nftables (the program nft)",
    },
    Package {
        need: Need::Iptables,
        debian: "iptables",
        present: || on_path("iptables-nft") && on_path("iptables-legacy"),
        elsewhere: "iptables (the programs iptables-nft and iptables-legacy)",
    },
    Package {
        need: Need::Python,
        debian: "python3 python3-venv",
        present: || {
            Command::new("python3")
                .args(["-c", "import venv, ensurepip"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        },
        elsewhere: "Python 3 with the modules venv and ensurepip",
    },
    Package {
        need: Need::Runtime,
        debian: "containerd runc containernetworking-plugins",
        present: || {
            ["containerd", "ctr", "runc"].into_iter().all(on_path)
                && Path::new("/usr/lib/cni/loopback").is_file()
        },
        elsewhere: "containerd, ctr and runc, and the CNI plugin loopback in /usr/lib/cni",
    },
    Package {
        need: Need::Machine,
        debian: "qemu-system-x86 busybox-static binutils",
        present: || ["qemu-system-x86_64", "busybox", "strip"].into_iter().all(on_path),
        elsewhere: "QEMU (qemu-system-x86_64), a static busybox and strip; the kernel is Debian's",
    },
    Package {
        need: Need::Image,
        debian: "buildah mmdebstrap",
        present: || ["buildah", "mmdebstrap"].into_iter().all(on_path),
        elsewhere: "buildah and mmdebstrap",
    },
    Package {
        need: Need::Prometheus,
        debian: "prometheus",
        present: || on_path("promtool"),
        elsewhere: "Prometheus (the program promtool)",
    },
    Package {
        need: Need::Clang,
        debian: "clang-19 linux-libc-dev libbpf-dev",
        present: || {
            let header = Path::new("/usr/include/bpf/bpf_helpers.h");
            crate::bpf::compiler().is_some() && header.is_file()
        },
        elsewhere: "clang 19 or newer, the kernel's headers for programs (linux/bpf.h), and libbpf's headers",
    },
    Package {
        need: Need::Faketime,
        debian: "libfaketime",
        present: || {
            let folder = format!("/usr/lib/{}-linux-gnu/faketime", std::env::consts::ARCH);
            Path::new(&folder).join("libfaketimeMT.so.1").is_file()
        },
        elsewhere: "libfaketime (libfaketimeMT.so.1)",
    },
    Package {
        need: Need::Plugins,
        debian: "containernetworking-plugins",
        present: || Path::new("/usr/lib/cni/portmap").is_file(),
        elsewhere: "the CNI project's plugins (portmap and its like) in /usr/lib/cni",
    },
    Package {
        need: Need::CrossAmd64,
        debian: "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
        present: || {
            on_path("x86_64-linux-gnu-gcc")
                && Path::new("/usr/x86_64-linux-gnu/lib/libc.a").is_file()
        },
        elsewhere: "a C compiler named x86_64-linux-gnu-gcc, and the static C library for it",
    },
    Package {
        need: Need::CrossArm64,
        debian: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        present: || {
            on_path("aarch64-linux-gnu-gcc")
                && Path::new("/usr/aarch64-linux-gnu/lib/libc.a").is_file()
        },
        elsewhere: "a C compiler named aarch64-linux-gnu-gcc, and the static C library for it",
    },
    Package {
        need: Need::Emulator,
        debian: "qemu-user-static",
        present: || on_path("qemu-aarch64-static"),
        elsewhere: "QEMU's static user emulation (qemu-aarch64-static, qemu-x86_64-static)",
    },
    Package {
        need: Need::Go,
        // The version in Debian is too old for current Kubernetes.
        debian: "",
        present: || on_path("go"),
        elsewhere: "Go 1.26 or newer, on the PATH (https://go.dev/dl)",
    },
];

/// The requirements of all commands, for this machine's architecture.
pub(crate) const ALL: &[Need] = &[
    Need::Linker,
    Need::Cxx,
    Need::Iproute,
    Need::Nft,
    Need::Iptables,
    Need::Python,
    Need::Go,
    Need::Runtime,
    Need::Machine,
    Need::Image,
    Need::Prometheus,
    Need::Clang,
    Need::Faketime,
    Need::Plugins,
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only print the packages
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.dry_run {
        for package in missing(ALL) {
            let by_hand = package.debian.is_empty();
            say::result(if by_hand { package.elsewhere } else { package.debian });
        }
    } else {
        install(ALL)?;
        say::good("nothing is missing");
    }
    Ok(ExitCode::SUCCESS)
}

fn missing(needs: &[Need]) -> Vec<&'static Package> {
    PACKAGES.iter().filter(|p| needs.contains(&p.need) && !(p.present)()).collect()
}

/// Returns true if this process may change network namespaces.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Fails without the right to create network namespaces.
///
/// # Errors
/// Shows how to run `command` with that right.
pub(crate) fn need_root(command: &str) -> Result<()> {
    if is_root() {
        return Ok(());
    }
    bail!(
        "{command} makes network namespaces and so needs root; run: \
         sudo -E env \"PATH=$PATH\" cargo xtask {command}"
    )
}

/// Prints the missing packages and installs them.
///
/// # Errors
/// On systems outside the Debian family, or without root, lists the packages for manual installation.
pub(crate) fn install(needs: &[Need]) -> Result<()> {
    let missing = missing(needs);
    if missing.is_empty() {
        return Ok(());
    }
    let by_hand: Vec<&str> =
        missing.iter().filter(|p| p.debian.is_empty()).map(|p| p.elsewhere).collect();
    if !by_hand.is_empty() {
        bail!("Debian has no package for it; install by hand: {}", by_hand.join("; "));
    }
    let packages: Vec<&str> = missing.iter().flat_map(|p| p.debian.split(' ')).collect();
    if !on_path("apt-get") {
        let wanted: Vec<&str> = missing.iter().map(|p| p.elsewhere).collect();
        bail!("this is no Debian system; install by your own means: {}", wanted.join("; "));
    }
    if !is_root() {
        bail!("not root; run: sudo apt-get install {}", packages.join(" "));
    }
    say::step(&format!("installing from Debian's packages: {}", packages.join(" ")));
    apt(&["update", "-q"])?;
    let mut args = vec!["install", "-q", "-y", "--no-install-recommends"];
    args.extend(&packages);
    apt(&args)
}

fn apt(args: &[&str]) -> Result<()> {
    let _quiet = NoServices::begin()?;
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("start apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed with {status}; its output is above", args.join(" "));
    }
    Ok(())
}

/// While this value exists, installed packages start no service. Only their programs are needed. An unneeded Prometheus
/// or containerd would take ports and memory.
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn begin() -> Result<Self> {
        use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
        let mut options = std::fs::OpenOptions::new();
        match options.write(true).create_new(true).mode(0o755).open(SERVICE_POLICY) {
            Ok(mut file) => {
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                Ok(Self { ours: true })
            }
            // Another policy file exists already.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Ok(Self { ours: false })
            }
            Err(error) => Err(error).with_context(|| format!("write {SERVICE_POLICY}")),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_file(SERVICE_POLICY);
        }
    }
}

/// Debian's packages run this program before they start a service; exit code 101 forbids it.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";
