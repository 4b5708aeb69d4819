//! For which machine a program was built, by the head of its file.

use std::fmt;

/// The bytes of a program's file that identify its machine.
pub const HEADER_BYTES: usize = 20;

/// A processor's architecture, as ELF has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// 1 is 32 bits, 2 is 64.
    class: u8,
    /// 1 is little endian, 2 is big.
    order: u8,
    number: u16,
}

impl Machine {
    /// Reads the head of a file; `None` if it is no program of Linux.
    pub fn of(header: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = header.first_chunk()?;
        let [0x7f, b'E', b'L', b'F', class @ 1..=2, order @ 1..=2, ..] = *header else {
            return None;
        };
        let number = [header[18], header[19]];
        let number =
            if order == 1 { u16::from_le_bytes(number) } else { u16::from_be_bytes(number) };
        Some(Self { class, order, number })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.number, self.class) {
            (0x3e, 2) => f.write_str("x86-64"),
            (0xb7, _) => f.write_str("aarch64"),
            (0x28, _) => f.write_str("arm"),
            (0x03, _) => f.write_str("i386"),
            (0xf3, _) => f.write_str("risc-v"),
            (number, _) => write!(f, "ELF machine {number:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(class: u8, order: u8, number: [u8; 2]) -> Vec<u8> {
        let mut header = vec![0x7f, b'E', b'L', b'F', class, order, 1];
        header.resize(18, 0);
        header.extend(number);
        header
    }

    #[test]
    fn programs_are_distinguished_by_their_machine() {
        let named = |header: &[u8]| Machine::of(header).map(|machine| machine.to_string());
        assert_eq!(named(&header(2, 1, [0x3e, 0])).as_deref(), Some("x86-64"));
        assert_eq!(named(&header(2, 1, [0xb7, 0])).as_deref(), Some("aarch64"));
        assert_eq!(named(&header(2, 2, [0, 0x16])).as_deref(), Some("ELF machine 0x16"));
        // The same processor with half the width is another machine.
        assert_ne!(Machine::of(&header(1, 1, [0x3e, 0])), Machine::of(&header(2, 1, [0x3e, 0])));
    }

    #[test]
    fn a_truncated_program_and_other_files_have_no_machine() {
        let whole = header(2, 1, [0x3e, 0]);
        for bytes in [&b""[..], b"#!/bin/sh\nexec true\n", &whole[..19], &[0; 64]] {
            assert_eq!(Machine::of(bytes), None);
        }
    }
}
