//! HPACK's Huffman code (RFC 7541, appendix B), for reading.
//!
//! The code is canonical: the lengths alone determine it.

/// The length of each byte's code in bits, and of the end mark's.
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const SYMBOLS: usize = 257;
const LONGEST: usize = 30;
/// The last symbol. No text contains it.
const END_MARK: u16 = 256;
/// Text is padded to a whole byte with the first bits of the end mark: fewer than this many ones.
const PADDING: usize = 8;

/// The code in the order of its values: how many symbols each length has, and the symbols themselves.
struct Code {
    counts: [u32; LONGEST + 1],
    symbols: [u16; SYMBOLS],
}

static CODE: Code = Code::new();

impl Code {
    const fn new() -> Self {
        let mut code = Self { counts: [0; LONGEST + 1], symbols: [0; SYMBOLS] };
        let (mut length, mut at) = (1, 0);
        while length <= LONGEST {
            let mut symbol = 0;
            while symbol < END_MARK + 1 {
                if LENGTHS[symbol as usize] as usize == length {
                    code.counts[length] += 1;
                    code.symbols[at] = symbol;
                    at += 1;
                }
                symbol += 1;
            }
            length += 1;
        }
        code
    }
}

/// The text of these bytes; `None` if they are not valid.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(bytes.len() * 8 / 5);
    let mut search = Search::default();
    for byte in bytes {
        for shift in (0..8).rev() {
            let Some(symbol) = search.next(u32::from(byte >> shift & 1))? else { continue };
            text.push(u8::try_from(symbol).ok()?);
            search = Search::default();
        }
    }
    (search.length < PADDING && search.only_ones).then_some(text)
}

/// The bits since the last symbol, and where among the codes of their length they are.
struct Search {
    length: usize,
    /// The bits so far, less the first code of their length.
    offset: u32,
    /// Number of symbols with shorter codes.
    shorter: usize,
    only_ones: bool,
}

impl Default for Search {
    fn default() -> Self {
        Self { length: 0, offset: 0, shorter: 0, only_ones: true }
    }
}

impl Search {
    /// Takes one bit. The outer `None`: no code starts with these bits.
    fn next(&mut self, bit: u32) -> Option<Option<u16>> {
        self.length += 1;
        self.only_ones &= bit == 1;
        self.offset = 2 * self.offset + bit;
        let count = *CODE.counts.get(self.length)?;
        if self.offset < count {
            let at = self.shorter + usize::try_from(self.offset).ok()?;
            return CODE.symbols.get(at).map(|symbol| Some(*symbol));
        }
        self.offset -= count;
        self.shorter += usize::try_from(count).ok()?;
        Some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7541, appendices C.4 and C.6.
    #[test]
    fn the_examples_of_the_specification_are_read() {
        let cases: [(&[u8], &str); 4] = [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x64, 0x02], "302"),
            (
                &[
                    0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04,
                    0x0b, 0x81, 0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
                ],
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ];
        for (bytes, text) in cases {
            assert_eq!(decode(bytes).as_deref(), Some(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn every_code_is_that_of_one_symbol_and_no_bits_are_left_over() {
        let sum: u64 = LENGTHS.iter().map(|length| 1 << (LONGEST - usize::from(*length))).sum();
        assert_eq!(sum, 1 << LONGEST);
    }

    #[test]
    fn a_whole_byte_of_padding_or_zeros_in_it_are_refused() {
        assert_eq!(decode(&[]), Some(Vec::new()));
        assert_eq!(decode(&[0xff]), None);
        // A code of five bits for '0', then zeros in place of ones.
        assert_eq!(decode(&[0b0000_0000]), None);
        assert_eq!(decode(&[0b0000_0111]).as_deref(), Some(&b"0"[..]));
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff]), None);
    }
}
