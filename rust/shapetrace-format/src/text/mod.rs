//! A readable form of trace files.
//!
//! ```text
//! trace(%x) {
//!   %y = ltorch.silu(%x) {
//!     %y = prims.silu(%x)
//!   }
//!   return %y
//! }
//! host {
//!   about {"thunder": "0.2.6"}
//!   symbols {
//!     ltorch.silu = symbol("thunder.torch", "silu")
//!     prims.silu = symbol("thunder.core.prims", "silu")
//!     return = symbol("thunder.core.prims", "python_return")
//!   }
//!   %x = TensorProxy("x", (4, 4))   ; a proxy has one name and one definition
//!   trace {"args": (%x,)}
//!   %y = TensorProxy("y", (4, 4))
//!   ops {
//!     %y = ltorch.silu: args (%x,) output %y details {"line": 12}
//!       %y = prims.silu: args (%x,) kwargs {"inplace": False} output %y
//!     return: args (%y,) output None
//!   }
//! }
//! ```
//!
//! **The first part** is the program in the core's own [text form](shapetrace_core::text). A file
//! without host data has only that.
//!
//! **The host block** starts with a line `host {`. It holds `about`, `symbols`, `trace` and `ops`,
//! once each, and definitions, in any order as long as a name is defined before it is used. `;`
//! starts a comment.
//!
//! **Nodes** are spelled much as Python spells them: `None`, `True`, `False`, integers of any size,
//! floats (`1.5`, `-0.0`, `inf`, `nan`; `nan(0x7ff8000000000001)` for a NaN with other bits),
//! `"text"`, `b"bytes"`, `(a, b)`, `(a,)`, `[a]`, `{key: value}`, and objects as `name(argument, ...)`
//! or `"any text"(argument, ...)`. A backslash in quotes escapes as in Python: `\n`, `\t`, `\r`,
//! `\\`, `\"`, `\x1b`, and in texts `\u2028` and `\U0001f600`. Inside brackets lines may end anywhere.
//!
//! **Proxies** are defined once, as `%name = kind(argument, ...)` with the name of the value of the
//! program that they stand for, and mentioned as `%name`. More proxies of one value are `%name'1`,
//! `%name'2`. A proxy that stands for no value of the program is `~label`, or `~"any text"`: the
//! label is its first argument if that is a text, and what it is if not.
//!
//! **Shared nodes.** What is long and occurs in several places is defined once, as
//! `$label = node`. The label is made from the content, and stays the same wherever it stands.
//!
//! **Ops** are in the order of the program, each behind its results and its symbol. `kwargs` and
//! `details` are left out when they are empty.
//!
//! [`print()`] writes the canonical form: it depends on what a file holds and not on how its nodes
//! are numbered or shared, and parsing and printing it again gives the same text. What nothing
//! refers to is not written.

mod canonical;
mod lexer;
mod parser;
mod printer;
mod program;
mod spelling;

pub use parser::{parse, ParseError, ParseErrorKind};
pub use printer::{print, print_within};

pub(crate) use printer::print_host;
pub use shapetrace_core::text::MAX_SOURCE_BYTES;
