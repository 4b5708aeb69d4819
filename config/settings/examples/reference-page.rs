//! Writes the reference page of all settings to standard output.

#![expect(clippy::print_stdout, reason = "the page is what this program is for")]

fn main() {
    print!("{}", config_settings::reference_page());
}
