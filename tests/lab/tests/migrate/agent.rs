//! A policy agent for tests. It serves `npa.sock`, calls `ipamd.sock`, and attaches and pins BPF programs as
//! aws-network-policy-agent does. It drops all traffic of pods with the name `closed…` and refuses pods with the name
//! `refused…`.
//!
//! The agent is this test program, executed on the lab's node.

use anyhow::{Context as _, Result, bail, ensure};
use aya::{
    Ebpf,
    programs::{
        SchedClassifier, TcAttachType,
        tc::{NlOptions, TcAttachOptions, TcHandle, qdisc_add_clsact},
    },
};
use config_model::{PodName, VethName};
use ipamd_npa::{
    self as policy,
    wire::{
        DeleteNpReply, DeleteNpRequest, EnforceNpReply, EnforceNpRequest,
        np_backend_server::{NpBackend, NpBackendServer},
    },
};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    write::{Object, Symbol, SymbolSection},
};
use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Stdio},
    time::{Duration, Instant},
};
use tests_lab::{Lab, wait_for};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};

pub(super) const PINS: &str = "/sys/fs/bpf/globals/aws";
const IPAMD: &str = "/var/run/aws-node/ipamd.sock";
const NPA: &str = "/var/run/aws-node/npa.sock";
const PATIENCE: Duration = Duration::from_secs(30);

/// A running agent on a node. A drop stops it.
pub(super) struct Agent {
    child: Child,
    // The agent exits at the end of its input.
    input: Option<ChildStdin>,
    printed: PathBuf,
}

impl Agent {
    /// Starts the agent, and waits until it serves.
    pub(super) fn start(lab: &Lab, node: &str, folder: &Path) -> Result<Self> {
        let printed = folder.join("printed");
        let mut agent = Self::run(lab, node, "serve", &printed)?;
        let serves = wait_for("the policy agent to serve", PATIENCE, || agent.has("serving"));
        if serves.is_err() {
            agent.end()?;
        }
        serves.map(|()| agent)
    }

    /// Attaches and pins a program of another owner.
    pub(super) fn attach_foreign(lab: &Lab, node: &str, folder: &Path, link: &str) -> Result<()> {
        let mut foreign =
            Self::run(lab, node, &format!("foreign {link}"), &folder.join("foreign"))?;
        let status = foreign.child.wait().context("cannot wait for the program")?;
        ensure!(status.success(), "{}", foreign.printed()?);
        Ok(())
    }

    fn run(lab: &Lab, node: &str, words: &str, printed: &Path) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let program = program.to_str().context("the path is not UTF-8")?;
        let is = format!("{WORDS}={words}");
        let call = ["node", "exec", node, "--", "env", &is, program, "--ignored", "--nocapture"];
        let mut command = lab.command(&[&call[..], &["--exact", "agent::is_the_agent"]].concat());
        let out = File::create(printed).context("cannot create a file for the output")?;
        let err = out.try_clone().context("cannot share the file")?;
        command.stdin(Stdio::piped()).stdout(out).stderr(err);
        let mut child = command.spawn().context("cannot start the policy agent")?;
        let input = child.stdin.take();
        Ok(Self { child, input, printed: printed.to_owned() })
    }

    /// Returns true if the agent's output has a line with this text.
    ///
    /// # Errors
    /// If there is no such line.
    pub(super) fn has(&self, line: &str) -> Result<bool> {
        let printed = self.printed()?;
        ensure!(printed.lines().any(|it| it.contains(line)), "no line {line:?} in:\n{printed}");
        Ok(true)
    }

    fn printed(&self) -> Result<String> {
        fs::read_to_string(&self.printed).context("cannot read the output")
    }

    pub(super) fn end(&mut self) -> Result<()> {
        drop(self.input.take());
        self.child.wait().map(drop).context("cannot wait for the policy agent")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[test]
#[ignore = "not a test: the agent that other tests start"]
fn is_the_agent() -> Result<()> {
    let Some(words) = std::env::var_os(WORDS) else { return Ok(()) };
    let words = words.into_string().ok().context("the arguments are not UTF-8")?;
    match words.split(' ').collect::<Vec<_>>().as_slice() {
        ["serve"] => {
            tokio::runtime::Runtime::new().context("cannot start tokio")?.block_on(serve())
        }
        ["foreign", link] => attach(link, FOREIGN, TcAttachType::Ingress, PASS, None),
        other => bail!("unknown arguments {other:?}"),
    }
}

async fn serve() -> Result<()> {
    let terms = policy::ask(Path::new(IPAMD), Instant::now() + PATIENCE).await?;
    say(&format!("config {} {} {}", terms.mode, terms.multi_nic, terms.instance_id));
    let _ = fs::remove_file(NPA);
    let listener = UnixListener::bind(NPA).with_context(|| format!("cannot listen at {NPA}"))?;
    say("serving");
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        ended.send(())
    });
    let serving = Server::builder()
        .add_service(NpBackendServer::new(Backend { mode: terms.mode }))
        .serve_with_incoming(UnixListenerStream::new(listener));
    tokio::select! {
        served = serving => served.context("cannot serve"),
        _ = end => Ok(()),
    }
}

struct Backend {
    mode: String,
}

#[tonic::async_trait]
impl NpBackend for Backend {
    async fn enforce_np_to_pod(
        &self,
        asked: Request<EnforceNpRequest>,
    ) -> Result<Response<EnforceNpReply>, Status> {
        let asked = asked.into_inner();
        let pod = PodName { namespace: asked.k8s_pod_namespace, name: asked.k8s_pod_name };
        say(&format!("enforce {pod} {} {}", asked.network_policy_mode, asked.interface_count));
        if pod.name.starts_with("refused") || asked.network_policy_mode != self.mode {
            return Err(Status::internal("no probe for this pod"));
        }
        let count = u8::try_from(asked.interface_count).unwrap_or(u8::MAX);
        let verdict = if pod.name.starts_with("closed") { DROP } else { PASS };
        for number in 0..count {
            let veth = VethName::of("eni", &pod, number);
            let identifier = format!("{}_{}", pod.name, pod.namespace);
            let attached = [(TcAttachType::Egress, TO_POD), (TcAttachType::Ingress, FROM_POD)]
                .into_iter()
                .try_for_each(|(side, name)| {
                    attach(veth.as_str(), name, side, verdict, Some(&identifier))
                });
            attached.map_err(|error| Status::internal(format!("{error:#}")))?;
        }
        Ok(Response::new(EnforceNpReply { success: true }))
    }

    async fn delete_pod_np(
        &self,
        asked: Request<DeleteNpRequest>,
    ) -> Result<Response<DeleteNpReply>, Status> {
        let asked = asked.into_inner();
        say(&format!("delete {}/{}", asked.k8s_pod_namespace, asked.k8s_pod_name));
        Ok(Response::new(DeleteNpReply { success: true }))
    }
}

/// Attaches a program, and pins it with a map. Both survive this process.
fn attach(
    link: &str,
    name: &'static str,
    side: TcAttachType,
    verdict: i32,
    identifier: Option<&str>,
) -> Result<()> {
    let mut loaded =
        Ebpf::load(&object_file(name, verdict)?).context("cannot load the programs")?;
    // The qdisc exists already for the second program of a link.
    let _ = qdisc_add_clsact(link);
    let (programs, maps) = (Path::new(PINS).join("programs"), Path::new(PINS).join("maps"));
    for folder in [&programs, &maps] {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let program = loaded.program_mut(name).context("the object file lacks the program")?;
    let program: &mut SchedClassifier = program.try_into()?;
    program.load().context("cannot load the program")?;
    let (priority, pinned, kept) = match identifier {
        Some(identifier) => (1, format!("{identifier}_{name}"), format!("{identifier}_{MAP}")),
        None => (2, name.to_owned(), name.to_owned()),
    };
    pin(&programs.join(pinned), |path| program.pin(path))?;
    let handle = TcHandle::new(0, priority);
    let options = TcAttachOptions::Netlink(NlOptions { priority, handle, ..NlOptions::default() });
    let attached = program.attach_with_options(link, side, options);
    let attached = attached.with_context(|| format!("cannot attach {name} to {link}"))?;
    // A drop would detach the program.
    std::mem::forget(program.take_link(attached)?);
    let map = loaded.map(MAP).context("the object file lacks the map")?;
    pin(&maps.join(kept), |path| map.pin(path))
}

/// Replaces the pin of that path.
fn pin<E: std::error::Error + Send + Sync + 'static>(
    path: &Path,
    pin: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<()> {
    let _ = fs::remove_file(path);
    pin(path).with_context(|| format!("cannot pin {}", path.display()))
}

/// Returns an object file with a map, and with a program that returns this verdict for every packet.
fn object_file(name: &str, verdict: i32) -> Result<Vec<u8>> {
    let mut file = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    // r0 = verdict; exit
    let mut code = vec![0xb7, 0, 0, 0];
    code.extend(verdict.to_le_bytes());
    code.extend([0x95, 0, 0, 0, 0, 0, 0, 0]);
    // A hash map with room for two entries: keys of four bytes, values of one byte.
    let map: Vec<u8> = [1_u32, 4, 1, 2, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    let parts = [
        ("classifier", SectionKind::Text, SymbolKind::Text, name, code),
        ("maps", SectionKind::Data, SymbolKind::Data, MAP, map),
        ("license", SectionKind::Data, SymbolKind::Data, "_license", b"GPL\0".to_vec()),
    ];
    for (section, kind, symbol, name, bytes) in parts {
        let section = file.add_section(Vec::new(), section.into(), kind);
        let size = u64::try_from(bytes.len()).context("the section is too long")?;
        file.append_section_data(section, &bytes, 8);
        file.add_symbol(Symbol {
            name: name.into(),
            value: 0,
            size,
            kind: symbol,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
    }
    file.write().context("cannot write the object file")
}

fn say(line: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

const WORDS: &str = "FERRULE_TEST_POLICY_AGENT";
pub(super) const FOREIGN: &str = "of_somebody";
const TO_POD: &str = "handle_ingress";
const FROM_POD: &str = "handle_egress";
const MAP: &str = "ingress_pod_state_map";
/// linux/pkt_cls.h: `TC_ACT_OK` and `TC_ACT_SHOT`.
const PASS: i32 = 0;
const DROP: i32 = 2;
