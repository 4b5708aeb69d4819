//! The style of all tables that the commands print.

use comfy_table::{Table, presets};

pub(super) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(head);
    table
}
