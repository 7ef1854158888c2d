//! The binary form.
//!
//! ```
//! use shapetrace_format::binary::{read, write, Limits};
//! use shapetrace_format::TraceFile;
//! # use shapetrace_core::text::parse;
//! # let program = parse("trace(%x: tensor) {\n  %y = prims.sin(%x)\n  return %y\n}").unwrap();
//!
//! let file = TraceFile { program, host: None };
//! let bytes = write(&file)?;
//! let again = read(&bytes, &Limits::default())?;
//! assert_eq!(write(&again)?, bytes);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The bytes
//!
//! **Header.** Fixed numbers are little-endian.
//!
//! | offset   | bytes | what |
//! |----------|-------|------|
//! | 0        | 8     | `89 53 54 46 0D 0A 1A 0A`: not text, `STF`, line ends that a transfer as text would change |
//! | 8        | 2     | version of the format, from 1 |
//! | 10       | 1     | length `n` of the next |
//! | 11       | `n`   | who wrote the file, name and version, UTF-8 |
//! | 11 + `n` | 4     | CRC-32 of all bytes before |
//! | 15 + `n` | 8     | length of the unpacked payload |
//! | 23 + `n` | 8     | length `m` of the packed payload |
//! | 31 + `n` | 4     | CRC-32 of the unpacked payload |
//! | 35 + `n` | `m`   | the payload, packed with raw deflate; the file ends with it |
//!
//! The first five fields stay as they are in every version, so that any reader can say who wrote
//! a file that it cannot read. A reader knows every version up to its own.
//!
//! **Payload.** Sections behind each other: a tag of four ASCII letters, the length of the body,
//! the body. A reader passes over a section that it does not know if the first letter of its tag
//! is a small one, and refuses it otherwise. No section is there twice; the order is free.
//!
//! **Body.** Columns behind each other, each its length, then its bytes. Every column holds
//! entries of one kind and ends with the last one.
//!
//! **Numbers** in sections are LEB128, at most 64 bits, in their shortest form. *Signed* ones are
//! zigzag-coded before: 0, -1, 1, -2 are 0, 1, 2, 3. *Near p* is the signed difference to the
//! prediction `p`; `last + 1` means the one after the last number of that column, at first 0.
//!
//! **`TEXT`**: every text once, in the order of first use below. Columns: how many; stems; numbers; lengths;
//! bytes. A text is a stem, and a number if it ends in one that is spelled in at most nine digits
//! without zeros before. The stem is coded as `2 * s`, one more if a number follows: `s` is 0 for
//! a new stem, whose length and bytes stand in their columns, or one more than the index of an
//! earlier one. A number is near the last number with the same stem + 1, at first 0.
//! *A text* elsewhere is 0 for the next text that was not used so far, or 1 + near `last + 1`, the
//! last of the same column that was not new.
//!
//! **`SYMB`**: how many; names (texts); flags ([`SymbolFlags`] bits); arithmetic: 0, or 1 + the
//! text of its name.
//!
//! **`CNST`**: how many; kinds: 0 bool, 1 int, 2 float, 3 type, 4 opaque; numbers: 0 or 1, signed,
//! -, 0 bool 1 int 2 float 3 other, the number; floats: eight bytes each.
//!
//! **`VALU`**: how many; kinds: 0 tensor, 1 other, 2 bool, 3 int, 4 float, 5 other number; hints: 0, or 1 + the
//! constant near `last + 1`; names: 0, or 1 + a text.
//!
//! **`OPER`**: how many scopes and ops; ops of each scope; symbols; flags: twice the [`OpFlags`]
//! bits, one more if the op has a scope inside; numbers of operands; operands; numbers of results;
//! results. Scopes are in pre-order. The two low bits of an operand or result tell what the others
//! are: 0, a value near the *next unused* one; 1, its position
//! among the operands and results of the op that owns the scope; 2, how many values were coded
//! with 0 in this scope since it was; 3, a constant, or, as a result, an empty slot (others 0). Next
//! unused is the first value after the last one coded with 0 that was never coded with 0 in any
//! scope, at first 0; one more than the last value if there is none.
//!
//! **`ENDS`**: how many inputs, outputs, pinned values and shape mentions; inputs; outputs; pinned values, all near
//! `last + 1`; tensors, near the last; dimensions; numbers, near the last.
//!
//! **`NODE`** and **`HOST`** are there together or not at all.
//!
//! **`NODE`**: how many nodes; shapes; kinds; numbers of parts; parts; far parts; integers (signed);
//! texts (also the digits of large integers); floats (eight bytes each); lengths of bytes; bytes;
//! values of proxies: 0, or 1 + near `last + 1`. Kinds: 0 nothing, 1 false, 2 true, 3 integer, 4 large
//! integer, 5 float, 6 text, 7 bytes, 8 tuple, 9 list, 10 dictionary, 11 object, 12 proxy. A shape is 0, and
//! then kind and, from 8 on, the number of parts stand in their columns; or one more than the index of
//! an earlier shape. Nodes of an earlier shape from kind 10 on have its first part, which is not
//! coded again. A part is
//!
//! - 0: a loose node, which is loose no longer. Nodes are loose once they are there; of the parts
//!   of one node that are 0, the last is the last loose node, the one before it the one before.
//! - 1: the part that the node before of the same shape has there.
//! - 2: in the column of far parts, how many nodes lie between. Such parts are numbered from 0.
//! - 3 + 2 i: the far part `i`.
//! - 4 + 2 i: the proxy after which `i` more came.
//!
//! **`HOST`**: the nodes about the file and the trace; one node for each symbol, near `last + 1`;
//! for each op its arguments, keyword arguments, output and details, in four columns; nodes by
//! number. An entry of the four is 0, as the op before has it; 1, as the owner of the scope has
//! it; 2, the next of the nodes by number; or 3 + the position among the nodes that are still
//! loose, near the next unused one, over all four columns in the order of reading: op by op, arguments first.
//!
//! [`SymbolFlags`]: shapetrace_core::ir::SymbolFlags
//! [`OpFlags`]: shapetrace_core::ir::OpFlags

mod codec;
mod container;
mod error;
mod nodes;
mod program;
mod texts;

pub use container::{header, Header};
pub use error::{Place, ReadError, ReadErrorKind, Tag};

use codec::Budget;
use container::Sections;
use texts::{TextReader, TextWriter};

use crate::{FormatError, TraceFile};

/// The latest version of the format, which is the one that is written.
pub const FORMAT_VERSION: u16 = 1;

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"\x89STF\r\n\x1a\n";

/// Who writes files.
const WRITER: &str = concat!("shapetrace-rs ", env!("CARGO_PKG_VERSION"));

/// What a reader takes on. A file that asks for more is refused before memory is taken for it.
///
/// ```
/// let limits = shapetrace_format::binary::Limits { entries: 10_000, ..Default::default() };
/// assert!(limits.payload_bytes > limits.file_bytes);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file. 256 MiB by default.
    pub file_bytes: u64,
    /// Bytes of the payload, unpacked. 1 GiB by default.
    pub payload_bytes: u64,
    /// Texts, symbols, constants, values, scopes, ops, nodes, inputs, outputs, pinned values and shape
    /// mentions in all. 16 777 216 by default. Each takes up to 150 bytes of memory beside its
    /// text, its bytes, and 4 for each part of it.
    pub entries: u64,
    /// Bytes of text, each text counted wherever it occurs. 1 GiB by default.
    pub text_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file_bytes: 1 << 28, payload_bytes: 1 << 30, entries: 1 << 24, text_bytes: 1 << 30 }
    }
}

/// Whether bytes are meant to be a file in the binary form: by the magic, or by what a transfer as
/// text leaves of it. [`read`] tells which.
pub fn is_binary(bytes: &[u8]) -> bool {
    matches!(bytes, [0x89 | 0x09, rest @ ..] if rest.starts_with(&MAGIC[1..4]))
}

/// The file as bytes. Equal files give equal bytes. Linear; no recursion.
///
/// # Errors
/// As [`TraceFile::check`]: what cannot be read again is not written.
pub fn write(file: &TraceFile) -> Result<Vec<u8>, FormatError> {
    file.check()?;
    Ok(container::pack(&write_payload(file)))
}

fn write_payload(file: &TraceFile) -> Vec<u8> {
    let mut texts = TextWriter::default();
    let mut payload = Vec::new();
    program::write(&file.program, &mut texts, &mut payload);
    if let Some(host) = &file.host {
        nodes::write(host, &file.program, &mut texts, &mut payload);
    }
    texts.finish(&mut payload);
    payload
}

/// The file that bytes stand for. Runs nothing; time and memory are bounded by `limits` and the
/// length of `bytes`, whatever they are. Linear; no recursion.
///
/// Nodes are in the table as they were written, see [`crate::Nodes::push`].
///
/// # Errors
/// [`ReadError`] that says what is wrong, and at which byte.
pub fn read(bytes: &[u8], limits: &Limits) -> Result<TraceFile, ReadError> {
    let payload = container::unpack(bytes, limits)?;
    let tags = [
        texts::TAG,
        program::SYMBOLS,
        program::CONSTANTS,
        program::VALUES,
        program::OPS,
        program::ENDS,
        nodes::NODES,
        nodes::HOST,
    ];
    let mut sections = Sections::new(&payload, tags)?;
    let mut budget = Budget::new(limits);
    let section = sections.get(texts::TAG)?;
    let texts_at = section.clone();
    let mut texts = TextReader::new(section, limits, &mut budget)?;
    let program = program::read(&mut sections, &mut texts, &mut budget)?;
    let host = match (sections.find(nodes::NODES), sections.find(nodes::HOST)) {
        (None, None) => None,
        (Some(nodes), Some(host)) => Some(nodes::read(nodes, host, &program, &mut texts, &mut budget)?),
        (Some(_), None) => return Err(sections.missing(nodes::HOST)),
        (None, Some(_)) => return Err(sections.missing(nodes::NODES)),
    };
    texts.end(&texts_at)?;
    let file = TraceFile { program, host };
    file.check().map_err(|error| ReadError::new(Place::Whole, error.into()))?;
    Ok(file)
}
