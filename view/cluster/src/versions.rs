//! The versions of the tool, of Kubernetes and of Ferrule's programs in a cluster.

use serde::Serialize;
use std::collections::BTreeMap;
use view_text::{Cell, Table, Text, Tone};

/// A program in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Such as `ferrule-ipamd`.
    pub name: &'static str,
    pub pod: String,
    pub image: String,
    /// The version that the program itself reports, or the reason why it is unknown.
    pub version: Result<String, String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionReport {
    /// The version of this tool.
    pub ferrule: String,
    /// `None` if the cluster was not read.
    pub kubernetes: Option<String>,
    pub programs: Vec<ProgramLine>,
}

/// The pods that run one version of a program from one image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramLine {
    pub program: &'static str,
    /// `None` if it is unknown.
    pub version: Option<String>,
    pub image: String,
    pub pods: usize,
    /// The reason of the first pod if the version is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl VersionReport {
    pub fn of(ferrule: &str, kubernetes: Option<String>, programs: Vec<Program>) -> Self {
        let mut lines: BTreeMap<_, ProgramLine> = BTreeMap::new();
        for Program { name, pod, image, version } in programs {
            let why = version.as_ref().err().map(|why| format!("{pod}: {why}"));
            let version = version.ok();
            let key = (name, version.clone(), image.clone());
            let line = ProgramLine { program: name, version, image, pods: 0, why };
            lines.entry(key).or_insert(line).pods += 1;
        }
        Self { ferrule: ferrule.to_owned(), kubernetes, programs: lines.into_values().collect() }
    }

    /// Formats the versions. `columns` is the width of the terminal.
    pub fn text(&self, columns: Option<u16>) -> Text {
        let mut text = Text::from(format!("ferrule {}\n", self.ferrule).as_str());
        let Some(kubernetes) = &self.kubernetes else { return text };
        text.push_plain(&format!("Kubernetes {kubernetes}\n\n"));
        if self.programs.is_empty() {
            text.push_plain("no pod of Ferrule; install the chart, or set --ferrule-namespace\n");
            return text;
        }
        let mut table = Table::new(&["PROGRAM", "VERSION", "PODS", "IMAGE"]);
        for line in &self.programs {
            table.row([
                Cell::from(line.program),
                self.cell(line),
                line.pods.to_string().into(),
                (&line.image).into(),
            ]);
        }
        text.append(table.text(columns));
        for (program, why) in
            self.programs.iter().filter_map(|line| Some((line.program, line.why.as_ref()?)))
        {
            text.push(Tone::Notice, "unknown");
            text.push_plain(&format!("  {program} of {why}\n"));
        }
        text
    }

    /// Versions other than that of the tool are marked.
    fn cell(&self, line: &ProgramLine) -> Cell {
        match &line.version {
            None => Cell::new(Tone::Notice, "unknown"),
            Some(version) if *version == self.ferrule => Cell::from(version),
            Some(version) => Cell::new(Tone::Notice, version),
        }
    }
}

/// Returns the version in a page of metrics of Ferrule's programs.
pub fn version_of_metrics(page: &str) -> Option<&str> {
    let line = page.lines().find(|line| line.starts_with("ferrule_build_info{"))?;
    let (_, rest) = line.split_once("version=\"")?;
    rest.split_once('"').map(|(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(pod: &str, version: Result<&str, &str>) -> Program {
        Program {
            name: "ferrule-ipamd",
            pod: pod.to_owned(),
            image: "repo/ferrule:2".to_owned(),
            version: version.map(str::to_owned).map_err(str::to_owned),
        }
    }

    #[test]
    fn each_version_of_a_program_is_one_line() {
        let programs = vec![
            program("a", Ok("0.2.0")),
            program("b", Ok("0.1.0")),
            program("c", Ok("0.2.0")),
            program("d", Err("no answer within 10 s")),
        ];
        let report = VersionReport::of("0.2.0", Some("v1.36.2".to_owned()), programs);
        let expected = "\
            ferrule 0.2.0\n\
            Kubernetes v1.36.2\n\
            \n\
            PROGRAM         VERSION   PODS   IMAGE\n\
            ferrule-ipamd   unknown   1      repo/ferrule:2\n\
            ferrule-ipamd   0.1.0     1      repo/ferrule:2\n\
            ferrule-ipamd   0.2.0     2      repo/ferrule:2\n\
            unknown  ferrule-ipamd of d: no answer within 10 s\n";
        assert_eq!(report.text(None).to_string(), expected);
        let alone = VersionReport::of("0.2.0", None, Vec::new());
        assert_eq!(alone.text(None).to_string(), "ferrule 0.2.0\n");
    }

    #[test]
    fn the_version_is_in_the_metrics_of_each_program() {
        let page = "# HELP ferrule_build_info x\nferrule_build_info{program=\"ferrule-agent\",version=\"1.2.3\"} 1\n";
        assert_eq!(version_of_metrics(page), Some("1.2.3"));
        assert_eq!(version_of_metrics("up 1\n"), None);
    }
}
