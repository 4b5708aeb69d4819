//! Command lines of pages, compared with the programs' help.

/// Returns the commands of a shell block as words, also those in `$(…)`. Variables before a command, `sudo`, `env` and
/// comments are left out. A backslash at the end of a line joins it to the next.
pub fn commands(block: &str) -> Vec<Vec<String>> {
    let whole = block.replace("\\\n", " ");
    let mut found = Vec::new();
    for line in whole.lines() {
        split(line, &mut found);
    }
    found.into_iter().map(|words| bare(&words)).filter(|words| !words.is_empty()).collect()
}

/// Splits a line into commands and their words. `$(…)` is one word, and its content is another command.
fn split(line: &str, found: &mut Vec<Vec<String>>) {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(word) = words.last_mut() else { return };
        match (c, quote) {
            ('$', None | Some('"')) if chars.peek() == Some(&'(') => {
                chars.next();
                let mut inner = String::new();
                let mut depth = 1;
                for c in chars.by_ref() {
                    depth += match c {
                        '(' => 1,
                        ')' => -1,
                        _ => 0,
                    };
                    if depth == 0 {
                        break;
                    }
                    inner.push(c);
                }
                split(&inner, found);
                word.push_str("$(…)");
            }
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('#', None) if word.is_empty() => break,
            ('|' | ';' | '&', None) => {
                found.push(std::mem::take(&mut words));
                words.push(String::new());
            }
            (c, None) if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(String::new());
                }
            }
            (c, _) => word.push(c),
        }
    }
    found.push(words);
}

/// Removes variables, `sudo` and `env` before the program's name, and the name's folder.
fn bare(words: &[String]) -> Vec<String> {
    let is_variable = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let before = |word: &&String| {
        word.is_empty() || is_variable(word) || ["sudo", "-E", "env"].contains(&word.as_str())
    };
    let mut rest: Vec<String> = words.iter().skip_while(before).cloned().collect();
    rest.retain(|word| !word.is_empty());
    if let Some(first) = rest.first_mut() {
        let base = first.rsplit('/').next().unwrap_or_default().to_owned();
        *first = base;
    }
    rest
}

/// The output of a program's `--help`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Help(String);

impl Help {
    /// Wraps a help text.
    pub fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns true if the list of commands contains this name.
    pub fn has_command(&self, name: &str) -> bool {
        let lines = self.0.lines().skip_while(|line| !line.trim_end().ends_with("ommands:"));
        lines
            .skip(1)
            .take_while(|line| line.is_empty() || line.starts_with(' '))
            .any(|line| line.split_whitespace().next() == Some(name))
    }

    /// Returns true if there is a list of commands.
    pub fn lists_commands(&self) -> bool {
        self.0.lines().any(|line| line.trim_end().ends_with("ommands:"))
    }

    /// Returns true if the flag takes a value as its next word; `None` if there is no such flag.
    pub fn flag(&self, flag: &str) -> Option<bool> {
        let of = |line: &str| -> Option<bool> {
            let mut words = line.split_whitespace().map(|word| word.trim_end_matches(','));
            let is_flag = line.trim_start().starts_with('-');
            if !is_flag || !words.any(|word| word.split(['=', '[']).next() == Some(flag)) {
                return None;
            }
            let start: Vec<&str> = line.split_whitespace().take(4).collect();
            let typed = ["string", "stringArray", "int", "duration", "strings"];
            Some(start.iter().any(|word| word.starts_with('<') || typed.contains(word)))
        };
        self.0.lines().find_map(of)
    }
}

/// Compares the words after a program's name with its help. `ask` returns the help of a list of subcommands.
///
/// # Errors
/// With the first unknown word.
pub fn judge(
    words: &[String],
    mut ask: impl FnMut(&[String]) -> Option<Help>,
) -> Result<(), String> {
    let mut below: Vec<String> = Vec::new();
    let mut levels: Vec<Help> = Vec::new();
    levels.extend(ask(&below));
    let mut words = words.iter();
    let mut operands = false;
    while let Some(word) = words.next() {
        let Some(help) = levels.last() else { return Err("the program has no help".to_owned()) };
        if word == "--" {
            return Ok(());
        }
        if word.starts_with('-') && word.len() > 1 {
            let flag = word.split('=').next().unwrap_or_default();
            let takes_value = levels.iter().rev().find_map(|help| help.flag(flag));
            match takes_value {
                None if ["--help", "-h"].contains(&flag) => {}
                None => return Err(format!("{} has no {flag}", below.join(" "))),
                Some(true) if !word.contains('=') => drop(words.next()),
                Some(_) => {}
            }
        } else if !operands && help.has_command(word) {
            below.push(word.clone());
            levels.extend(ask(&below));
        } else if !operands && help.lists_commands() {
            return Err(format!("{} has no command {word}", below.join(" ")));
        } else {
            operands = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn commands_are_found_behind_variables_pipes_and_substitutions() {
        let block = "A=1 sudo -E ferrule status -o json | jq . # look\nexport K=\"$(ferrule-lab cluster \
                     kubeconfig)\"\nbin/helm upgrade \\\n  --install 'a b'\n# nothing\n";
        let found: Vec<String> = commands(block).iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            found,
            [
                "ferrule status -o json",
                "jq .",
                "ferrule-lab cluster kubeconfig",
                "export K=$(…)",
                "helm upgrade --install a b"
            ]
        );
    }

    const TOP: &str = "Usage: lab [OPTIONS] <COMMAND>\n\nCommands:\n  up    Bring it up\n  down  Away\n\n\
                       Options:\n      --name <NAME>  Which\n  -h, --help  Print help\n";
    const UP: &str =
        "Usage: lab up\n\nOptions:\n      --nodes <N>  How many\n  -k, --keep  Leave it\n";

    fn ask(below: &[String]) -> Option<Help> {
        match below.join(" ").as_str() {
            "" => Some(Help::of(TOP)),
            "up" => Some(Help::of(UP)),
            _ => None,
        }
    }

    #[test]
    fn listed_flags_and_commands_are_accepted_and_others_are_named() {
        for good in ["up", "--name x up --nodes 3", "up -k --nodes=3 x", "--help", "up -- --any"] {
            assert_eq!(judge(&words(good), ask), Ok(()), "{good}");
        }
        for (bad, named) in
            [("away", "away"), ("up --node 3", "--node"), ("--nodes 3 up", "--nodes")]
        {
            let printed = judge(&words(bad), ask).expect_err(bad);
            assert!(printed.contains(named), "{bad}: {printed}");
        }
    }
}
