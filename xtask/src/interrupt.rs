//! SIGINT and SIGTERM: every process and lab that this run started is gone before it exits.

use crate::{
    binaries::Binaries,
    processes::{ours, stop_all},
    say,
};
use anyhow::{Context as _, Result};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, Once, PoisonError},
};

/// Labs that must not outlive this process: the tool, and the folder with one lab or several.
static LABS: Mutex<Vec<Labs>> = Mutex::new(Vec::new());

#[derive(Clone, PartialEq, Eq)]
struct Labs {
    tool: PathBuf,
    folder: PathBuf,
    name: Option<String>,
}

/// Removes labs when it is dropped or when the process is interrupted.
pub(crate) struct Guard(Labs);

impl Guard {
    /// Guards one lab in the usual folder. Its creator removes it in all other cases.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub(crate) fn lab(programs: &Binaries, name: &str) -> Result<Self> {
        let folder =
            std::env::var_os("FERRULE_LAB_DIR").unwrap_or_else(|| "/run/ferrule-lab".into());
        Self::watch(Labs {
            tool: programs.lab(),
            folder: folder.into(),
            name: Some(name.to_owned()),
        })
    }

    /// Guards all labs that other programs create in this folder.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub(crate) fn folder(programs: &Binaries, folder: &Path) -> Result<Self> {
        Self::watch(Labs { tool: programs.lab(), folder: folder.to_owned(), name: None })
    }

    fn watch(labs: Labs) -> Result<Self> {
        install()?;
        lock().push(labs.clone());
        Ok(Self(labs))
    }

    /// Keeps the guarded labs.
    pub(crate) fn release(self) {
        lock().retain(|labs| *labs != self.0);
    }
}

/// Handles SIGINT, SIGTERM and SIGHUP from now on; further calls change nothing.
///
/// # Errors
/// When the handler cannot be installed.
pub(crate) fn install() -> Result<()> {
    static HANDLER: Once = Once::new();
    let mut installed = Ok(());
    HANDLER.call_once(|| installed = ctrlc::set_handler(interrupted));
    installed.context("install the handler of SIGINT and SIGTERM")
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut labs = lock();
        if let Some(at) = labs.iter().position(|labs| *labs == self.0) {
            let labs = labs.swap_remove(at);
            if labs.name.is_none() {
                take_down(&labs);
            }
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Labs>> {
    LABS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn interrupted() {
    say::step("interrupted: stopping every process of this run");
    stop_all(&ours(std::process::id()));
    for labs in lock().iter() {
        take_down(labs);
    }
    // A lab's servers stop with their lab; a process that is left is stopped here.
    stop_all(&ours(std::process::id()));
    std::process::exit(130);
}

fn take_down(labs: &Labs) {
    let names: Vec<String> = match &labs.name {
        Some(name) => vec![name.clone()],
        None => {
            let found = std::fs::read_dir(&labs.folder).into_iter().flatten().flatten();
            found.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        }
    };
    for name in names {
        let down = Command::new(&labs.tool)
            .args(["--name", &name, "down"])
            .env("FERRULE_LAB_DIR", &labs.folder)
            .status();
        if !down.is_ok_and(|status| status.success()) {
            let (tool, folder) = (labs.tool.display(), labs.folder.display());
            say::fail(&format!(
                "lab {name} is left; run: FERRULE_LAB_DIR={folder} {tool} --name {name} down"
            ));
        }
    }
    if labs.name.is_none() {
        // The remaining files were reported above.
        let _ = std::fs::remove_dir(&labs.folder);
    }
}
