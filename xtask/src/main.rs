//! The project's commands: demo, test, bench, layers, generate.
fn main() {}
