//! `ferrule-ipamd install` and `uninstall`: the plugin and its network configuration on the node.
//!
//! Programs come first, because no runtime calls them yet. The conflist follows when an ADD would succeed.
//! `install-plan` has the decisions and `install-disk` the operations; this module waits.

mod network_report;
mod pods;

pub(crate) use network_report::NetworkReport;

use crate::repeated_message::RepeatedMessage;
use anyhow::{Context as _, Result, bail};
use config_settings::Settings;
use install_disk::{Folders, InstallError, Locked, conflist};
use install_plan::{Note, Op, Refusal};
use ipamd_rpc::Client;
use std::{
    future::Future,
    path::Path,
    pin::pin,
    time::{Duration, Instant},
};

/// The options of `install`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Installs the programs and returns, for an init container.
    pub only_programs: bool,
    /// Keeps checking, and restores changed files.
    pub stay: bool,
    /// The longest wait for the daemon.
    pub timeout: Duration,
}

impl Default for Order {
    fn default() -> Self {
        Self { only_programs: false, stay: false, timeout: TIMEOUT }
    }
}

/// Installs from the folder `brought` to the folders of the settings, and reports each step. `ended` interrupts
/// the waits.
///
/// # Errors
/// If a folder or a program is not valid, the disk refuses, or the daemon is not ready in time. Completed steps
/// remain, and the next run continues from there.
pub async fn install(
    settings: &Settings,
    brought: &Path,
    order: Order,
    mut print: impl FnMut(&str),
    ended: impl Future<Output = ()>,
) -> Result<()> {
    let folders = folders(settings, brought);
    let wanted = conflist(settings);
    let mut ended = pin!(ended);
    let locked = tokio::select! {
        locked = lock(&folders) => locked?,
        () = &mut ended => bail!("interrupted before the programs were installed; run this again"),
    };
    report_steps(&mut print, |print| locked.bring_programs(print))?;
    drop(locked);
    if order.only_programs {
        return Ok(());
    }
    let mut known = tokio::select! {
        notes = first_network(&folders, settings, &wanted, order, &mut print) => notes?,
        () = &mut ended => {
            NetworkReport::forget(settings);
            bail!("interrupted before the network was installed; run this again");
        }
    };
    print("installed");
    if !order.stay {
        return Ok(());
    }
    let mut failed = RepeatedMessage::default();
    let mut network_report = NetworkReport::default();
    loop {
        network_report.notes = known.iter().map(ToString::to_string).collect();
        write_report(&network_report, settings, &mut failed, &mut print);
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = &mut ended => {
                NetworkReport::forget(settings);
                return Ok(());
            }
        }
        let mut done = 0_u32;
        let mut each = |text: &str| {
            done += 1;
            network_report.last = Some(text.to_owned());
            print(text);
        };
        let looked = tokio::select! {
            looked = look_again(&folders, settings, &wanted, &mut each) => looked,
            () = &mut ended => {
                NetworkReport::forget(settings);
                return Ok(());
            }
        };
        network_report.restored += u64::from(done > 0);
        network_report.failing = looked.as_ref().err().map(|error| format!("{error:#}"));
        match looked {
            Ok(notes) => {
                let new = notes.iter().filter(|note| !known.contains(note));
                new.for_each(|note| print(&note.to_string()));
                known = notes;
            }
            // The cause may be fixed before the next check.
            Err(error) => failed.print(format!("{error:#}"), &mut print),
        }
    }
}

/// Reverts [`install`], except the programs if `keep_programs` is set.
///
/// # Errors The node has pods of amazon-vpc-cni. Then nothing changes. Or if the disk refuses; the next run then
/// continues from there.
pub fn uninstall(
    settings: &Settings,
    brought: &Path,
    keep_programs: bool,
    mut print: impl FnMut(&str),
) -> Result<()> {
    report_steps(&mut print, |print| {
        let folders = folders(settings, brought);
        folders.lock()?.among(pods::look(settings)?).remove(keep_programs, print)
    })?;
    print("nothing of ours is left");
    Ok(())
}

fn folders(settings: &Settings, brought: &Path) -> Folders {
    let folders = Folders::new(brought, &settings.host_bin_dir, &settings.host_conf_dir);
    folders.with_fallback(Path::new(PLUGINS))
}

/// Reports each step, and then the notes for people.
fn report_steps(
    print: &mut impl FnMut(&str),
    act: impl FnOnce(&mut dyn FnMut(&Op)) -> Result<Vec<Note>, InstallError>,
) -> Result<Vec<Note>, InstallError> {
    let notes = act(&mut |op| print(&op.to_string()))?;
    notes.iter().for_each(|note| print(&note.to_string()));
    Ok(notes)
}

fn write_report(
    network_report: &NetworkReport,
    settings: &Settings,
    failed: &mut RepeatedMessage,
    print: &mut impl FnMut(&str),
) {
    if let Err(error) = network_report.write(settings) {
        failed.print(format!("cannot write the installer's report for the daemon: {error}"), print);
    }
}

/// Installs the network once an ADD would succeed and no other daemon manages the node. With `stay` it waits for
/// a takeover forever, because a person starts it.
async fn first_network(
    folders: &Folders,
    settings: &Settings,
    wanted: &install_plan::Conflist,
    order: Order,
    print: &mut impl FnMut(&str),
) -> Result<Vec<Note>> {
    let mut give_up = Instant::now() + order.timeout;
    let (mut waiting, mut failed) = (RepeatedMessage::default(), RepeatedMessage::default());
    loop {
        wait_until_ready(&settings.socket, give_up, print).await?;
        let locked = lock(folders).await?;
        match report_steps(print, |each| make_network(locked, settings, wanted, each)) {
            Err(InstallError::Refused(refusal @ Refusal::NotTakenOver { .. }))
                if order.stay || Instant::now() < give_up =>
            {
                if order.stay {
                    let not_taken_over = Some(refusal.to_string());
                    let network_report =
                        NetworkReport { not_taken_over, ..NetworkReport::default() };
                    write_report(&network_report, settings, &mut failed, print);
                    give_up = Instant::now() + order.timeout;
                }
                waiting.print(format!("waiting for a takeover: {refusal}"), print);
            }
            done => return Ok(done?),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Waits for the folders like [`Folders::lock`], without blocking the thread.
async fn lock(folders: &Folders) -> Result<Locked<'_>, InstallError> {
    let give_up = Instant::now() + LOCKED_BY_OTHERS;
    loop {
        match folders.try_lock() {
            Err(InstallError::Locked { .. }) if Instant::now() < give_up => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            outcome => return outcome,
        }
    }
}

fn make_network(
    locked: Locked<'_>,
    settings: &Settings,
    wanted: &install_plan::Conflist,
    each: impl FnMut(&Op),
) -> Result<Vec<Note>, InstallError> {
    locked.among(pods::look(settings)?).make_network(wanted, each)
}

async fn look_again(
    folders: &Folders,
    settings: &Settings,
    wanted: &install_plan::Conflist,
    print: &mut impl FnMut(&str),
) -> Result<Vec<Note>> {
    let mut each = |op: &Op| print(&op.to_string());
    let locked = lock(folders).await?;
    locked.bring_programs(&mut each)?;
    Ok(make_network(locked, settings, wanted, &mut each)?)
}

/// Waits until STATUS would succeed, and reports each new reason of the wait.
async fn wait_until_ready(
    socket: &Path,
    give_up: Instant,
    print: &mut impl FnMut(&str),
) -> Result<()> {
    let mut waiting = RepeatedMessage::default();
    while let Some(reason) = unready(socket).await {
        if Instant::now() >= give_up {
            bail!(
                "the daemon is not ready: {reason}; the programs are installed, the network is not; \
                 check the daemon (its log, `ferrule doctor`) and run this again, or set a longer \
                 --timeout"
            );
        }
        waiting.print(format!("waiting for the daemon: {reason}"), print);
        tokio::time::sleep(ASK_AGAIN).await;
    }
    Ok(())
}

/// The reason why STATUS would fail.
async fn unready(socket: &Path) -> Option<String> {
    let now = Instant::now();
    let answer = async {
        let client = Client::connect(socket, now + CONNECTING).await?;
        client.status(now + ANSWERING).await
    };
    match answer.await.context("cannot get the status of the daemon") {
        Ok(status) if status.unavailable.is_empty() => None,
        Ok(status) => Some(status.unavailable.join("; ")),
        Err(error) => Some(format!("{error:#}")),
    }
}

/// The CNI project's plugins in the image.
const PLUGINS: &str = "/opt/cni/plugins";
/// A node starts within minutes. A longer wait would hide the cause.
const TIMEOUT: Duration = Duration::from_secs(300);
const CONNECTING: Duration = Duration::from_secs(1);
const ANSWERING: Duration = Duration::from_secs(5);
/// As long as the wait of a process that cannot be interrupted.
const LOCKED_BY_OTHERS: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use std::fs;

    #[tokio::test]
    async fn an_installer_that_waits_for_the_folders_can_be_interrupted() {
        let node = tempfile::tempdir().unwrap();
        let [bin, conf] = ["bin", "net.d"].map(|name| node.path().join(name));
        for folder in [&bin, &conf] {
            fs::create_dir(folder).unwrap();
        }
        let other = Folders::new(node.path(), &bin, &conf);
        let _lock = other.lock().unwrap();
        let (settings, _) = Settings::resolve([("MY_NODE_NAME", "n")]).unwrap();
        let settings =
            Settings { host_bin_dir: bin.clone(), host_conf_dir: conf.clone(), ..settings };
        let order = Order { only_programs: true, ..Order::default() };
        let ended = tokio::time::sleep(Duration::from_millis(50));
        let error = install(&settings, node.path(), order, |_| (), ended).await.unwrap_err();
        assert!(error.to_string().contains("interrupted before the programs"), "{error:#}");
        assert_eq!(fs::read_dir(bin).unwrap().count(), 0);
    }
}
