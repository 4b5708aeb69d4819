//! Ctrl-C and SIGTERM: what was set up is taken down before we go.

use crate::{binaries::Binaries, say};
use anyhow::{Context as _, Result};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, Once, PoisonError},
};

/// Labs that must not outlive us: the tool, and the folder that holds them or one of them.
static LABS: Mutex<Vec<Labs>> = Mutex::new(Vec::new());

#[derive(Clone, PartialEq, Eq)]
struct Labs {
    tool: PathBuf,
    folder: PathBuf,
    name: Option<String>,
}

/// Takes labs down when it goes, and when we are interrupted before.
pub(crate) struct Guard(Labs);

impl Guard {
    /// Watches over one lab in the usual folder; whoever made it takes it down otherwise.
    ///
    /// # Errors
    /// When signals cannot be watched for.
    pub(crate) fn lab(programs: &Binaries, name: &str) -> Result<Self> {
        let folder =
            std::env::var_os("FERRULE_LAB_DIR").unwrap_or_else(|| "/run/ferrule-lab".into());
        Self::watch(Labs {
            tool: programs.lab(),
            folder: folder.into(),
            name: Some(name.to_owned()),
        })
    }

    /// Watches over all labs that others make in this folder.
    ///
    /// # Errors
    /// When signals cannot be watched for.
    pub(crate) fn folder(programs: &Binaries, folder: &Path) -> Result<Self> {
        Self::watch(Labs { tool: programs.lab(), folder: folder.to_owned(), name: None })
    }

    fn watch(labs: Labs) -> Result<Self> {
        static HANDLER: Once = Once::new();
        let mut installed = Ok(());
        HANDLER.call_once(|| installed = ctrlc::set_handler(interrupted));
        installed.context("watch for Ctrl-C")?;
        lock().push(labs.clone());
        Ok(Self(labs))
    }

    /// What is watched over stays.
    pub(crate) fn release(self) {
        lock().retain(|labs| *labs != self.0);
    }
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
    say::step("interrupted: taking down what was set up");
    for labs in lock().iter() {
        take_down(labs);
    }
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
        // What is left in it was told above.
        let _ = std::fs::remove_dir(&labs.folder);
    }
}
